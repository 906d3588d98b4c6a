// Drawings on threads of their own.
#include <gmock/gmock.h>

#include <thread>

#include "c_api/testing.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

DrawingHandle Start(const PipelineHandle& pipeline, const RequestHandle& request, int events) {
  qwen_image_drawing* drawing = nullptr;
  EXPECT_EQ(qwen_image_drawing_start(pipeline.get(), request.get(), events, &drawing), QWEN_IMAGE_OK)
      << qwen_image_last_error();
  return DrawingHandle(drawing);
}

// The next event, however long it takes; below 0: the status that came instead.
int Next(const DrawingHandle& drawing) {
  for (;;) {
    int event = -1;
    const qwen_image_status status = qwen_image_drawing_next(drawing.get(), 1000, &event);
    if (status != QWEN_IMAGE_OK) return -status;
    if (event != QWEN_IMAGE_EVENT_NONE) return event;
  }
}

TEST(CApiDrawing, TellsWhatWasAskedForAndDrawsTheSame) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest(3);
  const std::vector<uint8_t> expected = PixelsOf(Draw(pipeline, request));
  for (const int wanted :
       {QWEN_IMAGE_EVENT_NONE + 0, QWEN_IMAGE_EVENT_PROGRESS + 0, QWEN_IMAGE_EVENT_PREVIEW + 0,
        QWEN_IMAGE_EVENT_PROGRESS | QWEN_IMAGE_EVENT_PREVIEW}) {
    const DrawingHandle drawing = Start(pipeline, request, wanted);
    int told = 0, previews = 0;
    for (int event = Next(drawing); event != QWEN_IMAGE_EVENT_DRAWN; event = Next(drawing)) {
      ASSERT_GT(event, 0) << qwen_image_last_error();
      told |= event;
      if (event == QWEN_IMAGE_EVENT_PROGRESS) {
        EXPECT_EQ(qwen_image_drawing_progress(drawing.get())->steps, 3);
      } else {
        ++previews;
        EXPECT_EQ(qwen_image_picture_width(qwen_image_drawing_picture(drawing.get())), 64);
        EXPECT_EQ(PixelsOf(qwen_image_drawing_picture(drawing.get())).size(), 64u * 32 * 3);
      }
    }
    EXPECT_EQ(told, wanted);
    EXPECT_EQ(previews, wanted & QWEN_IMAGE_EVENT_PREVIEW ? 2 : 0);
    if (wanted & QWEN_IMAGE_EVENT_PROGRESS) {
      EXPECT_EQ(qwen_image_drawing_progress(drawing.get())->fraction, 1);
    }
    EXPECT_EQ(PixelsOf(qwen_image_drawing_picture(drawing.get())), expected);
    EXPECT_EQ(Next(drawing), QWEN_IMAGE_EVENT_DRAWN) << "it stays drawn";
  }
}

TEST(CApiDrawing, ItsFailureIsToldToTheThreadThatAsks) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest();
  ASSERT_EQ(qwen_image_request_set_size(request.get(), 100, 100), QWEN_IMAGE_OK);
  const DrawingHandle drawing = Start(pipeline, request, QWEN_IMAGE_EVENT_PROGRESS);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Next(drawing), -QWEN_IMAGE_USAGE);
    EXPECT_THAT(qwen_image_last_error(), HasSubstr("100x100"));
  }
}

TEST(CApiDrawing, CancelStopsIt) {
  const PipelineHandle pipeline = Open();
  const DrawingHandle drawing = Start(pipeline, SmallRequest(1000), QWEN_IMAGE_EVENT_PROGRESS);
  ASSERT_EQ(Next(drawing), QWEN_IMAGE_EVENT_PROGRESS);
  std::thread([&] { qwen_image_drawing_cancel(drawing.get()); }).join();
  EXPECT_EQ(Next(drawing), -QWEN_IMAGE_INTERRUPTED);
  EXPECT_STREQ(qwen_image_last_error(), "interrupted");
}

TEST(CApiDrawing, FreeStopsItWhereverItIs) {
  const PipelineHandle pipeline = Open();
  const DrawingHandle holds = Start(pipeline, SmallRequest(1000), QWEN_IMAGE_EVENT_PROGRESS);
  ASSERT_EQ(Next(holds), QWEN_IMAGE_EVENT_PROGRESS);
  std::thread([&] {  // another one: this one was told of an event
    DrawingHandle waits = Start(pipeline, SmallRequest(), QWEN_IMAGE_EVENT_NONE);
    int event = -1;
    EXPECT_EQ(qwen_image_drawing_next(waits.get(), 1, &event), QWEN_IMAGE_OK);
    EXPECT_EQ(event, QWEN_IMAGE_EVENT_NONE) << "it cannot have begun";
    waits.reset();
  })
      .join();
  Start(Open(), SmallRequest(1000), QWEN_IMAGE_EVENT_NONE).reset();
}

// It would wait for itself.
TEST(CApiDrawing, WhoWasToldOfAnEventCannotDrawMeanwhile) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest();
  const DrawingHandle drawing = Start(pipeline, request, QWEN_IMAGE_EVENT_PROGRESS);
  ASSERT_EQ(Next(drawing), QWEN_IMAGE_EVENT_PROGRESS);
  qwen_image_drawing* second = nullptr;
  EXPECT_EQ(qwen_image_drawing_start(pipeline.get(), request.get(), 0, &second), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("callback"));
  EXPECT_EQ(second, nullptr);
  qwen_image_picture* picture = nullptr;
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_USAGE);
  EXPECT_TRUE(Draw(Open(), request)) << "with another pipeline it may";
  while (Next(drawing) != QWEN_IMAGE_EVENT_DRAWN) continue;
  EXPECT_TRUE(Draw(pipeline, request)) << "and when the first one is done";
}

TEST(CApiDrawing, TheRequestMayGo) {
  const PipelineHandle pipeline = Open();
  RequestHandle request = SmallRequest();
  const std::vector<uint8_t> expected = PixelsOf(Draw(pipeline, request));
  const DrawingHandle drawing = Start(pipeline, request, QWEN_IMAGE_EVENT_NONE);
  request.reset();
  ASSERT_EQ(Next(drawing), QWEN_IMAGE_EVENT_DRAWN);
  EXPECT_EQ(PixelsOf(qwen_image_drawing_picture(drawing.get())), expected);
}

TEST(CApiDrawing, Refusals) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest();
  qwen_image_drawing* drawing = nullptr;
  EXPECT_EQ(qwen_image_drawing_start(nullptr, request.get(), 0, &drawing), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_drawing_start(pipeline.get(), nullptr, 0, &drawing), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_drawing_start(pipeline.get(), request.get(), 0, nullptr), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_drawing_start(pipeline.get(), request.get(), 8, &drawing), QWEN_IMAGE_USAGE);
  EXPECT_EQ(drawing, nullptr);
  int event = 0;
  EXPECT_EQ(qwen_image_drawing_next(nullptr, 0, &event), QWEN_IMAGE_USAGE);
  const DrawingHandle started = Start(pipeline, request, 0);
  EXPECT_EQ(qwen_image_drawing_next(started.get(), 0, nullptr), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_drawing_progress(nullptr), nullptr);
  EXPECT_EQ(qwen_image_drawing_picture(nullptr), nullptr);
  qwen_image_drawing_cancel(nullptr);
}

}  // namespace
}  // namespace qwen_image

// What a picture tells, and the settings of requests that came later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "c_api/testing.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "qwen_image/image_file.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

void BeginWith(const PictureHandle& picture, qwen_image_request* request) {
  EXPECT_EQ(qwen_image_request_set_init_image(request, qwen_image_picture_width(picture.get()),
                                              qwen_image_picture_height(picture.get()),
                                              qwen_image_picture_pixels(picture.get())),
            QWEN_IMAGE_OK);
}

TEST(CApiPicture, CarriesItsSettings) {
  const TempFolder folder;
  const RequestHandle request = SmallRequest();
  qwen_image_request_set_seed(request.get(), 7);
  qwen_image_request_set_step_cache(request.get(), 0.25);
  const PictureHandle picture = Draw(Open(), request);
  const std::string path = folder.path() / "circle.png";
  ASSERT_EQ(qwen_image_picture_save_png(picture.get(), path.c_str()), QWEN_IMAGE_OK);
  const std::string settings = qwen_image_picture_settings(picture.get());
  EXPECT_EQ(ReadPngText(path).at("qwen-image"), settings);
  const Json record = Json::parse(settings);
  EXPECT_EQ(record["prompt"], "a red circle");
  EXPECT_EQ(record["model"], "tiny");
  EXPECT_EQ(record["seed"], 7);
  EXPECT_EQ(record["step_cache"], 0.25);
  EXPECT_FALSE(record.contains("init_image"));

  qwen_image_picture* read = nullptr;
  ASSERT_EQ(qwen_image_picture_read(path.c_str(), &read), QWEN_IMAGE_OK);
  const PictureHandle owned(read);
  EXPECT_STREQ(qwen_image_picture_settings(read), "");
  EXPECT_EQ(qwen_image_picture_save_png(read, path.c_str()), QWEN_IMAGE_OK);
  EXPECT_TRUE(ReadPngText(path).empty());
}

TEST(CApiPicture, OthersPixelsGetItsSettings) {
  const TempFolder folder;
  const PictureHandle picture = Draw(Open(), SmallRequest());
  const std::string saved = folder.path() / "saved.png", written = folder.path() / "written.png";
  ASSERT_EQ(qwen_image_picture_save_png(picture.get(), saved.c_str()), QWEN_IMAGE_OK);
  const char* settings = qwen_image_picture_settings(picture.get());
  const uint8_t* pixels = qwen_image_picture_pixels(picture.get());
  ASSERT_EQ(qwen_image_write_png(written.c_str(), 64, 32, 3, pixels, settings), QWEN_IMAGE_OK);
  EXPECT_EQ(ReadBytes(written), ReadBytes(saved));
  const uint8_t clear[4] = {1, 2, 3, 4};
  for (const char* none : {"", static_cast<const char*>(nullptr)}) {
    ASSERT_EQ(qwen_image_write_png(written.c_str(), 1, 1, 4, clear, none), QWEN_IMAGE_OK);
    EXPECT_TRUE(ReadPngText(written).empty());
    EXPECT_EQ(ReadImage(written, {}, Transparency::kKept).image.pixels, (std::vector<uint8_t>{1, 2, 3, 4}));
  }
  EXPECT_EQ(qwen_image_write_png(written.c_str(), 1, 1, 4, clear, "{"), QWEN_IMAGE_BAD_INPUT);
  EXPECT_EQ(qwen_image_write_png(written.c_str(), 1, 1, 2, clear, ""), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_write_png(written.c_str(), 0, 1, 3, clear, ""), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_write_png(written.c_str(), 1, 1, 3, nullptr, ""), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_write_png(nullptr, 1, 1, 3, clear, ""), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_write_png("/no/such/folder/a.png", 1, 1, 3, clear, ""), QWEN_IMAGE_CANNOT_WRITE);
}

TEST(CApiPicture, IsDecodedFromMemoryAndReadAsAMask) {
  const TempFolder folder;
  const std::string path = folder.path() / "two.png";
  const Image two{2, 1, {255, 255, 255, 255, 0, 0, 0, 255}, 4};
  WritePng(path, two);
  const std::string file = ReadBytes(path);
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  const auto size = static_cast<int64_t>(file.size());
  qwen_image_picture* picture = nullptr;
  ASSERT_EQ(qwen_image_picture_decode_alpha(bytes, size, "two", &picture), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(PictureHandle(picture)), two.pixels);
  ASSERT_EQ(qwen_image_picture_decode_mask(bytes, size, "two", &picture), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_picture_channels(picture), 1);
  EXPECT_EQ(PixelsOf(PictureHandle(picture)), (std::vector<uint8_t>{255, 0}));
  ASSERT_EQ(qwen_image_picture_read_mask(path.c_str(), &picture), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(PictureHandle(picture)), (std::vector<uint8_t>{255, 0}));

  EXPECT_EQ(qwen_image_picture_decode_alpha(bytes, size - 20, "cut", &picture), QWEN_IMAGE_BAD_INPUT);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("cut"));
  EXPECT_EQ(picture, nullptr);
  EXPECT_EQ(qwen_image_picture_decode_mask(bytes, 0, "empty", &picture), QWEN_IMAGE_BAD_INPUT);
  EXPECT_EQ(qwen_image_picture_decode_mask(bytes, -1, "negative", &picture), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_picture_decode_alpha(nullptr, 1, "none", &picture), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_picture_decode_alpha(bytes, size, nullptr, &picture), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_picture_decode_alpha(bytes, size, "two", nullptr), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_picture_read_mask("/no/such/mask.png", &picture), QWEN_IMAGE_BAD_INPUT);
}

TEST(CApiPicture, TellsOfItsSource) {
  const PipelineHandle pipeline = Open();
  const PictureHandle first = Draw(pipeline, SmallRequest());
  EXPECT_EQ(qwen_image_picture_alignment(first.get()), nullptr);
  EXPECT_EQ(qwen_image_picture_note_count(first.get()), 0);
  EXPECT_EQ(qwen_image_picture_prompt_truncated(first.get()), 0);

  const RequestHandle request = SmallRequest();
  BeginWith(first, request.get());
  qwen_image_request_set_strength(request.get(), 0.5);
  const uint8_t column[3] = {255, 255, 255};  // of another shape than the picture, which is noted
  ASSERT_EQ(qwen_image_request_set_mask(request.get(), 1, 3, column), QWEN_IMAGE_OK);
  const PictureHandle second = Draw(pipeline, request);
  ASSERT_EQ(qwen_image_picture_note_count(second.get()), 1);
  EXPECT_THAT(qwen_image_picture_note(second.get(), 0), HasSubstr("mask of 1x3"));
  EXPECT_STREQ(qwen_image_picture_note(second.get(), 1), "");
  EXPECT_STREQ(qwen_image_picture_note(second.get(), -1), "");
  EXPECT_THAT(qwen_image_picture_settings(second.get()), HasSubstr("\"mask\":\"given-mask\""));

  GenerateRequest same;
  same.prompt = "a red circle";
  same.width = 64;
  same.height = 32;
  same.steps = 2;
  same.cfg = 1;
  same.strength = 0.5;
  same.init_image = Image{64, 32, PixelsOf(first)};
  same.mask = GreyImage{1, 3, {255, 255, 255}};
  const Picture expected = Pipeline(kTiny).Generate(same);
  const qwen_image_alignment* alignment = qwen_image_picture_alignment(second.get());
  ASSERT_EQ(alignment != nullptr, expected.source->alignment.measurable);
  if (!alignment) return;
  EXPECT_EQ(alignment->shift_x, expected.source->alignment.shift_x);
  EXPECT_EQ(alignment->scale_y, expected.source->alignment.scale_y);
  EXPECT_EQ(alignment->confidence, expected.source->alignment.confidence);
}

TEST(CApiPicture, TellsHowLongItTook) {
  const PictureHandle picture = Draw(Open(), SmallRequest());
  double encode_prompt = -1, encode_pictures = -1, denoise = -1, decode = -1;
  ASSERT_EQ(qwen_image_picture_seconds(picture.get(), &encode_prompt, &encode_pictures, &denoise, &decode),
            QWEN_IMAGE_OK);
  EXPECT_GT(encode_prompt, 0);
  EXPECT_GE(encode_pictures, 0);
  EXPECT_GT(denoise, 0);
  EXPECT_GT(decode, 0);
  EXPECT_EQ(qwen_image_picture_seconds(picture.get(), nullptr, nullptr, nullptr, nullptr), QWEN_IMAGE_OK);
}

TEST(CApiRequest, WhatWasSetCanBeTakenBack) {
  const PipelineHandle pipeline = Open();
  const PictureHandle plain = Draw(pipeline, SmallRequest());
  const RequestHandle request = SmallRequest();
  BeginWith(plain, request.get());
  const uint8_t white = 255;
  qwen_image_request_set_mask(request.get(), 1, 1, &white);
  qwen_image_request_add_input_image(request.get(), 64, 32, qwen_image_picture_pixels(plain.get()));
  EXPECT_EQ(qwen_image_check(pipeline.get(), request.get()), QWEN_IMAGE_USAGE) << "both kinds of picture";
  EXPECT_EQ(qwen_image_request_clear_input_images(request.get()), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(pipeline.get(), request.get()), QWEN_IMAGE_OK) << qwen_image_last_error();
  EXPECT_EQ(qwen_image_request_clear_init_image(request.get()), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(pipeline.get(), request.get()), QWEN_IMAGE_USAGE) << "a mask alone";
  EXPECT_EQ(qwen_image_request_clear_mask(request.get()), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(Draw(pipeline, request)), PixelsOf(plain));
}

TEST(CApiRequest, AMaskIsReadFromAFile) {
  const TempFolder folder;
  const std::string path = folder.path() / "mask.png";
  WritePng(path, {2, 1, {0, 0, 0, 255, 255, 255}});
  const PipelineHandle pipeline = Open();
  const PictureHandle plain = Draw(pipeline, SmallRequest());
  const RequestHandle request = SmallRequest();
  BeginWith(plain, request.get());
  ASSERT_EQ(qwen_image_request_read_mask(request.get(), path.c_str()), QWEN_IMAGE_OK);
  const std::vector<uint8_t> from_file = PixelsOf(Draw(pipeline, request));
  const uint8_t right[2] = {0, 255};
  ASSERT_EQ(qwen_image_request_set_mask(request.get(), 2, 1, right), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(Draw(pipeline, request)), from_file);
  EXPECT_NE(from_file, PixelsOf(plain));
  EXPECT_EQ(qwen_image_request_read_mask(request.get(), "/no/such/mask.png"), QWEN_IMAGE_BAD_INPUT);
}

TEST(CApiRequest, LatentsReplaceTheSeed) {
  const PipelineHandle pipeline = Open();
  const int64_t shape[3] = {1, 8, 64};
  const std::vector<float> values(8 * 64, 0.5f);
  const auto drawn = [&](uint64_t seed) {
    const RequestHandle request = SmallRequest();
    qwen_image_request_set_seed(request.get(), seed);
    EXPECT_EQ(qwen_image_request_set_latents(request.get(), shape, 3, values.data()), QWEN_IMAGE_OK);
    return PixelsOf(Draw(pipeline, request));
  };
  EXPECT_EQ(drawn(1), drawn(2));
  const RequestHandle request = SmallRequest();
  const int64_t wrong[3] = {1, 4, 64};
  EXPECT_EQ(qwen_image_request_set_latents(request.get(), wrong, 3, values.data()), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(pipeline.get(), request.get()), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("[1, 4, 64]"));
  for (const int dimensions : {-1, 0, 6, INT32_MAX})
    EXPECT_EQ(qwen_image_request_set_latents(request.get(), shape, dimensions, values.data()),
              QWEN_IMAGE_USAGE);
  for (const int64_t side : {int64_t{0}, int64_t{-1}, INT64_MAX, int64_t{1} << 32}) {
    const int64_t impossible[3] = {2, side, 2};
    EXPECT_EQ(qwen_image_request_set_latents(request.get(), impossible, 3, values.data()), QWEN_IMAGE_USAGE);
  }
}

int StopAtSecondStep(void*, const qwen_image_progress* progress) {
  return progress->stage == QWEN_IMAGE_DENOISE && progress->step == 2;
}

TEST(CApiRequest, AStoppedRunGoesOn) {
  const TempFolder folder;
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest(3);
  const std::vector<uint8_t> expected = PixelsOf(Draw(pipeline, request));
  ASSERT_EQ(qwen_image_request_set_resume_folder(request.get(), folder.path().c_str()), QWEN_IMAGE_OK);
  qwen_image_request_set_progress(request.get(), StopAtSecondStep, nullptr);
  qwen_image_picture* none = nullptr;
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &none), QWEN_IMAGE_INTERRUPTED);
  qwen_image_request_set_progress(request.get(), nullptr, nullptr);
  const PictureHandle picture = Draw(pipeline, request);
  EXPECT_EQ(qwen_image_picture_steps_resumed(picture.get()), 2);
  EXPECT_EQ(PixelsOf(picture), expected);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(qwen_image_picture_remove_resume_state(picture.get()), QWEN_IMAGE_OK);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));

  const PictureHandle again = Draw(pipeline, request);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  const std::string file = qwen_image_picture_resume_file(again.get());
  EXPECT_EQ(qwen_image_remove_resume_state(file.c_str()), QWEN_IMAGE_OK);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(qwen_image_remove_resume_state(""), QWEN_IMAGE_OK) << "there is none";
  EXPECT_EQ(qwen_image_remove_resume_state(nullptr), QWEN_IMAGE_USAGE);
}

struct Last {
  qwen_image_progress progress = {};
};

int Remember(void* last, const qwen_image_progress* progress) {
  static_cast<Last*>(last)->progress = *progress;
  return 0;
}

TEST(CApiProgress, EndsWithAllDone) {
  const RequestHandle request = SmallRequest();
  Last last;
  qwen_image_request_set_progress(request.get(), Remember, &last);
  Draw(Open(), request);
  EXPECT_EQ(last.progress.stage, QWEN_IMAGE_DECODE);
  EXPECT_EQ(last.progress.fraction, 1);
}

struct Waiting {
  const PipelineHandle& pipeline;
  bool tried = false;
};

int StopAtOnce(void*, const qwen_image_progress* progress) { return progress->steps == 2 ? 1 : 0; }

// Inside another thread's drawing: a caller that did not look at its flag while waiting would wait for ever.
int TryToDraw(void* user_data, const qwen_image_progress*) {
  auto& waiting = *static_cast<Waiting*>(user_data);
  if (waiting.tried) return 0;
  waiting.tried = true;
  std::thread([&] {
    const RequestHandle request = SmallRequest();
    qwen_image_request_set_progress(request.get(), StopAtOnce, nullptr);
    qwen_image_picture* none = nullptr;
    EXPECT_EQ(qwen_image_generate(waiting.pipeline.get(), request.get(), &none), QWEN_IMAGE_INTERRUPTED);
  }).join();
  return 0;
}

TEST(CApiProgress, ACallbackStopsTheWaitingForATurn) {
  const PipelineHandle pipeline = Open();
  Waiting waiting{pipeline};
  const RequestHandle request = SmallRequest();
  qwen_image_request_set_progress(request.get(), TryToDraw, &waiting);
  EXPECT_TRUE(Draw(pipeline, request));
  EXPECT_TRUE(waiting.tried);
}

}  // namespace
}  // namespace qwen_image

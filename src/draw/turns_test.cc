#include "draw/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {
namespace {

constexpr const char* kTiny = QWEN_IMAGE_SOURCE_DIR "/models/tiny";

GenerateRequest SmallRequest() {
  GenerateRequest request;
  request.prompt = "a red circle";
  request.width = request.height = 32;
  request.steps = 2;
  request.cfg = 1;
  return request;
}

TEST(Turn, ThreadsDrawOneAfterAnother) {
  const Pipeline pipeline(kTiny, {.threads = 2});
  const Picture expected = pipeline.Generate(SmallRequest());
  std::atomic<bool> other_draws = false;
  Picture other_picture;
  std::thread other;
  const auto on_progress = [&](const Progress&) {
    EXPECT_FALSE(other_draws);
    pipeline.Check(SmallRequest());  // needs no turn
    if (other.joinable()) return;
    other = std::thread([&] {
      other_picture = pipeline.Generate(
          SmallRequest(), {.on_progress = [&](const Progress&) { other_draws = true; }, .on_note = {}});
    });
  };
  const Picture picture = pipeline.Generate(SmallRequest(), {.on_progress = on_progress, .on_note = {}});
  other.join();
  EXPECT_TRUE(other_draws);
  EXPECT_EQ(picture.pixels, expected.pixels);
  EXPECT_EQ(other_picture.pixels, expected.pixels);
}

TEST(Turn, ACancelIsSeenWhileWaiting) {
  const Pipeline pipeline(kTiny, {.threads = 1});
  CancelFlag cancelled;
  cancelled.Cancel();
  const auto wait_for_other = [&](const Progress&) {
    std::thread([&] {
      try {
        pipeline.Generate(SmallRequest(), {.cancel = &cancelled});
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInterrupted);
      }
    }).join();  // forever, if it waited for this picture
  };
  pipeline.Generate(SmallRequest(), {.on_progress = wait_for_other});
}

TEST(Turn, TheCallerIsAskedWhileWaiting) {
  const Pipeline pipeline(kTiny, {.threads = 1});
  struct Enough {};
  const auto wait_for_other = [&](const Progress&) {
    std::thread([&] {
      int asked = 0;
      const auto on_wait = [&] {
        // A drawing in here would ask again, and so on without an end.
        EXPECT_THROW(pipeline.Generate(SmallRequest()), Error);
        if (++asked == 2) throw Enough();
      };
      EXPECT_THROW(pipeline.Generate(SmallRequest(), {.on_progress = {}, .on_note = {}, .on_wait = on_wait}),
                   Enough);
    }).join();  // forever, if it waited for this picture
  };
  pipeline.Generate(SmallRequest(), {.on_progress = wait_for_other});
}

TEST(Turn, TheChildOfAForkIsToldSo) {
  const Pipeline pipeline(kTiny, {.threads = 2});
  const pid_t child = fork();
  if (child == 0) {
    try {
      pipeline.Generate(SmallRequest());
    } catch (const Error& error) {
      _exit(error.kind() == ErrorKind::kUsage ? 7 : 1);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Turn, ACallbackCannotDrawWithItsOwnPipeline) {
  const Pipeline pipeline(kTiny, {.threads = 1});
  const auto draw_again = [&](const Progress&) { pipeline.Generate(SmallRequest()); };
  try {
    pipeline.Generate(SmallRequest(), {.on_progress = draw_again, .on_note = {}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("callbacks"));
  }
  // Another one can be used, and so can this one afterwards.
  const Pipeline second(kTiny, {.threads = 1});
  const auto draw_other = [&](const Progress& progress) {
    if (progress.stage == Progress::Stage::kDecode) second.Generate(SmallRequest());
  };
  EXPECT_EQ(pipeline.Generate(SmallRequest(), {.on_progress = draw_other, .on_note = {}}).pixels,
            second.Generate(SmallRequest()).pixels);
}

}  // namespace
}  // namespace qwen_image::draw

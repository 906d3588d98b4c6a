// Stages hold memory only while they run: of each component's weights no page is mapped while another stage
// computes. /proc/self/smaps tells.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {
namespace {

// Resident kilobytes of the mapped weights of a component.
int64_t ResidentKilobytes(const std::string& component) {
  std::ifstream smaps("/proc/self/smaps");
  int64_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    const bool mapping = line.find('-') < line.find(' ');  // "7f00…-7f01… r--p …"
    if (mapping) inside = line.find("/models/tiny/" + component + "/") != line.npos;
    if (inside && line.starts_with("Rss:")) total += std::stoll(line.substr(4));
  }
  return total;
}

TEST(StageMemory, WeightsAreMappedOnlyWhileTheirStageRuns) {
  const Pipeline pipeline(QWEN_IMAGE_SOURCE_DIR "/models/tiny", {.threads = 1});
  for (const char* component : {"text_encoder", "transformer", "vae"})
    EXPECT_EQ(ResidentKilobytes(component), 0) << component << " after opening";

  GenerateRequest request;
  request.width = request.height = 32;
  request.steps = 2;
  for (int picture = 0; picture < 2; ++picture) {
    request.prompt = "x" + std::to_string(picture);
    std::map<std::string, int64_t> most;  // that was resident of it in a stage
    const auto look = [&](const Progress& p) {
      const char* stage = p.stage == Progress::Stage::kEncodePrompt ? "encode/"
                          : p.stage == Progress::Stage::kDenoise    ? "denoise/"
                                                                    : "decode/";
      for (const char* component : {"text_encoder", "transformer", "vae"}) {
        int64_t& value = most[std::string(stage) + component];
        value = std::max(value, ResidentKilobytes(component));
      }
    };
    pipeline.Generate(request, {.on_progress = look});
    EXPECT_GT(most["encode/text_encoder"], 0);
    EXPECT_EQ(most["encode/transformer"], 0);
    EXPECT_EQ(most["encode/vae"], 0);
    EXPECT_EQ(most["denoise/text_encoder"], 0);
    EXPECT_GT(most["denoise/transformer"], 0);
    EXPECT_EQ(most["denoise/vae"], 0);
    EXPECT_EQ(most["decode/text_encoder"], 0);
    EXPECT_EQ(most["decode/transformer"], 0);
  }
}

TEST(StageMemory, AStoppedRunHoldsNothing) {
  const Pipeline pipeline(QWEN_IMAGE_SOURCE_DIR "/models/tiny", {.threads = 1});
  GenerateRequest request;
  request.prompt = "x";
  request.width = request.height = 32;
  for (const auto stage :
       {Progress::Stage::kEncodePrompt, Progress::Stage::kDenoise, Progress::Stage::kDecode}) {
    const auto stop_within = [&](const Progress& p) {
      if (p.stage == stage && p.fraction > 0) throw Error(ErrorKind::kInterrupted, "stopped");
    };
    EXPECT_THROW(pipeline.Generate(request, {.on_progress = stop_within}), Error);
    for (const char* component : {"text_encoder", "transformer", "vae"})
      EXPECT_EQ(ResidentKilobytes(component), 0) << component;
  }
}

}  // namespace
}  // namespace qwen_image::draw

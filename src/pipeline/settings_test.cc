#include "pipeline/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace qwen_image {
namespace {

constexpr int64_t kChannels = 16;
const Defaults kDefaults = {.width = 64, .height = 32, .steps = 20, .cfg = 4.0, .negative_prompt = " "};

std::string UsageError(const GenerateRequest& request) {
  try {
    ResolveSettings(request, kDefaults, kChannels);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.message();
  }
  return "(no error)";
}

TEST(Settings, WhatIsNotSaidComesFromTheModel) {
  const Settings s = ResolveSettings({}, kDefaults, kChannels);
  EXPECT_EQ(s.width, 64);
  EXPECT_EQ(s.height, 32);
  EXPECT_EQ(s.steps, 20);
  EXPECT_EQ(s.cfg, 4.0);
  EXPECT_EQ(s.negative_prompt, " ");
  EXPECT_EQ(s.grid.height, 2);
  EXPECT_EQ(s.grid.width, 4);
  EXPECT_TRUE(s.guided());
}

TEST(Settings, CfgOfOneIsOff) {
  GenerateRequest request;
  request.cfg = 1.0;
  EXPECT_FALSE(ResolveSettings(request, kDefaults, kChannels).guided());
}

TEST(Settings, AnImpossibleSizeNamesTheNearestValidOne) {
  GenerateRequest request;
  request.width = 100;
  request.height = 130;
  EXPECT_THAT(UsageError(request), testing::HasSubstr("nearest valid size is 96x128"));
  request.width = 0;
  EXPECT_THAT(UsageError(request), testing::HasSubstr("nearest valid size is 16x128"));
  request.width = 1'000'000;
  EXPECT_THAT(UsageError(request), testing::HasSubstr("nearest valid size is 8192x128"));
  request.width = -7;
  EXPECT_THAT(UsageError(request), testing::HasSubstr("nearest valid size is 16x128"));
}

TEST(Settings, StepsCfgAndLengthHaveLimits) {
  const std::vector<std::function<void(GenerateRequest&)>> wrong = {
      [](GenerateRequest& r) { r.steps = 0; },
      [](GenerateRequest& r) { r.steps = -1; },
      [](GenerateRequest& r) { r.steps = 1'000'000'000; },
      [](GenerateRequest& r) { r.cfg = std::nan(""); },
      [](GenerateRequest& r) { r.cfg = INFINITY; },
      [](GenerateRequest& r) { r.cfg = -1; },
      [](GenerateRequest& r) { r.max_sequence_length = 0; },
      [](GenerateRequest& r) { r.max_sequence_length = 1025; },
      [](GenerateRequest& r) {
        r.latents = InitialLatents{{1, 3, 64}, std::vector<float>(3 * 64)};
      },
      [](GenerateRequest& r) {
        r.latents = InitialLatents{{1, 8, 64}, std::vector<float>(3)};
      },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    GenerateRequest request;
    wrong[i](request);
    EXPECT_NE(UsageError(request), "(no error)") << "case " << i;
  }
}

TEST(Settings, DistilledModelsNeedNoGuidance) {
  SchedulerConfig lightning{
      .use_dynamic_shifting = true, .base_shift = std::log(3.0), .max_shift = std::log(3.0)};
  EXPECT_EQ(OfficialDefaults(lightning).cfg, 1.0);
  EXPECT_EQ(OfficialDefaults(lightning).steps, 8);
  SchedulerConfig full{
      .use_dynamic_shifting = true, .base_shift = 0.5, .max_shift = 0.9, .shift_terminal = 0.02};
  EXPECT_EQ(OfficialDefaults(full).cfg, 4.0);
  EXPECT_EQ(OfficialDefaults(full).steps, 50);
  EXPECT_EQ(OfficialDefaults(full).width, 1024);
}

}  // namespace
}  // namespace qwen_image

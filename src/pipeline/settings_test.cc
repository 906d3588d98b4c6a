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

TEST(Lightning, SetsStepsGuidanceAndNoiseLevels) {
  SchedulerConfig scheduler = OfficialScheduler();
  Defaults defaults = kDefaults;
  UseLightning({{.name = "style", .scale = 1}}, scheduler, defaults);
  EXPECT_EQ(defaults.steps, 20);
  EXPECT_FALSE(defaults.lightning);
  EXPECT_TRUE(scheduler.shift_terminal);

  const AppliedLora four = {.name = "four", .scale = 0.8, .lightning_steps = 4};
  UseLightning({four}, scheduler, defaults);
  EXPECT_EQ(defaults.steps, 4);
  EXPECT_EQ(defaults.cfg, 1);
  EXPECT_EQ(defaults.width, 64);
  EXPECT_TRUE(defaults.lightning);
  EXPECT_TRUE(scheduler.use_dynamic_shifting);
  EXPECT_EQ(scheduler.base_shift, std::log(3.0));
  EXPECT_EQ(scheduler.max_shift, std::log(3.0));
  EXPECT_FALSE(scheduler.shift_terminal);
  EXPECT_EQ(OfficialDefaults(scheduler).steps, 8) << "what it sets is what a distilled model brings";
}

TEST(Lightning, WhatTheUserSaysWins) {
  SchedulerConfig scheduler = OfficialScheduler();
  Defaults defaults = kDefaults;
  UseLightning({{.name = "eight", .lightning_steps = 8}}, scheduler, defaults);
  GenerateRequest request;
  request.steps = 6;
  EXPECT_EQ(ResolveSettings(request, defaults, kChannels).steps, 6);
  EXPECT_EQ(ResolveSettings(request, defaults, kChannels).cfg, 1);
  request.cfg = 3;
  EXPECT_TRUE(ResolveSettings(request, defaults, kChannels).guided());
}

TEST(Lightning, OfSeveralTheOneWithTheMostStepsDecides) {
  SchedulerConfig scheduler = OfficialScheduler();
  Defaults defaults = kDefaults;
  const AppliedLora eight = {.name = "eight", .scale = 0.5, .lightning_steps = 8};
  const AppliedLora four = {.name = "four", .scale = 0.5, .lightning_steps = 4};
  UseLightning({eight, four}, scheduler, defaults);
  EXPECT_EQ(defaults.steps, 8);
}

TEST(Lightning, WithoutEffectItSetsNothing) {
  SchedulerConfig scheduler = OfficialScheduler();
  Defaults defaults = kDefaults;
  UseLightning({{.name = "off", .scale = 0, .lightning_steps = 8}}, scheduler, defaults);
  EXPECT_EQ(defaults.steps, 20);
  EXPECT_TRUE(scheduler.shift_terminal);
}

TEST(Lightning, ADistilledModelStaysAsItIs) {
  SchedulerConfig scheduler = LightningScheduler();
  scheduler.base_shift = scheduler.max_shift = 2;
  Defaults defaults = kDefaults;
  UseLightning({{.name = "four", .lightning_steps = 4}}, scheduler, defaults);
  EXPECT_EQ(defaults.steps, 20);
  EXPECT_EQ(scheduler.base_shift, 2);
  EXPECT_FALSE(defaults.lightning);
}

}  // namespace
}  // namespace qwen_image

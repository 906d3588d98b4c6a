#include "draw/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "families/qwen_image/defaults.h"
#include "families/qwen_image/edit_model.h"

namespace qwen_image::draw {
namespace {

constexpr int64_t kChannels = 16;
const Defaults kDefaults = {.width = 64, .height = 32, .steps = 20, .cfg = 4.0, .negative_prompt = " "};

// With the rules of Qwen-Image.
Settings ResolveSettings(const GenerateRequest& request, const Defaults& defaults, int64_t channels,
                         const EditModel& edit = {}) {
  return draw::ResolveSettings(request, {.defaults = defaults,
                                         .geometry = {.latent_channels = channels},
                                         .max_prompt_tokens = kTokenizerMaxLength,
                                         .plan_edit = [&](std::span<const ImageSize> inputs, bool repairs) {
                                           return edit.Plan(inputs, repairs);
                                         }});
}

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

// Pictures to start from.

Image Blank(int64_t width, int64_t height) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 128)};
}

EditModel Edits(const std::string& variant) {
  const Variant edit = *ParseVariant(variant);
  return {{edit, "told", edit}, EditAreas{.vae_area = 128 * 128, .condition_area = 64 * 64}};
}

TEST(PictureSettings, StrengthSkipsTheFirstSteps) {
  GenerateRequest request;
  request.init_image = Blank(64, 32);
  // int(max(steps - min(steps * strength, steps), 0)) of diffusers' get_timesteps
  for (const auto& [steps, strength, first] :
       {std::tuple{20, 0.6, 8}, {20, 1.0, 0}, {10, 0.33, 6}, {4, 0.3, 2}, {7, 0.999, 0}, {50, 0.02, 49}}) {
    request.steps = steps;
    request.strength = strength;
    const Settings s = ResolveSettings(request, kDefaults, kChannels);
    EXPECT_EQ(s.first_step, first) << steps << " x " << strength;
    EXPECT_EQ(s.steps_run(), steps - first);
    const Schedule schedule = ScheduleOf(OfficialScheduler(), s);
    const Schedule all = MakeSchedule(OfficialScheduler(), steps, s.grid.tokens());
    EXPECT_EQ(schedule.timesteps.size(), static_cast<size_t>(s.steps_run()));
    EXPECT_EQ(schedule.sigmas.size(), static_cast<size_t>(s.steps_run()) + 1);
    EXPECT_EQ(schedule.sigmas.front(), all.sigmas[static_cast<size_t>(first)]);
    EXPECT_EQ(schedule.timesteps.back(), all.timesteps.back());
  }
  request.strength.reset();
  EXPECT_EQ(ResolveSettings(request, kDefaults, kChannels).strength, 0.6);
  request.outpaint.left = 16;
  EXPECT_EQ(ResolveSettings(request, kDefaults, kChannels).strength, 1.0);
  EXPECT_FALSE(ResolveSettings({}, kDefaults, kChannels).strength);
}

TEST(PictureSettings, AnInitialImageIsDrawnAtItsOwnSizeIfThatSuitsTheModel) {
  const auto size = [](int64_t width, int64_t height) {
    GenerateRequest request;
    request.init_image = Blank(width, height);
    const Settings s = ResolveSettings(request, kDefaults, kChannels);  // made for 64x32
    return std::pair{s.width, s.height};
  };
  EXPECT_EQ(size(64, 32), (std::pair<int64_t, int64_t>{64, 32}));
  EXPECT_EQ(size(50, 45), (std::pair<int64_t, int64_t>{48, 48})) << "whole tokens";
  EXPECT_EQ(size(400, 400), (std::pair<int64_t, int64_t>{48, 48})) << "the model's area";
  EXPECT_EQ(size(4, 4), (std::pair<int64_t, int64_t>{48, 48}));
  EXPECT_EQ(size(16000, 10), (std::pair<int64_t, int64_t>{1808, 16})) << "the ratio as far as tokens allow";
}

TEST(PictureSettings, TheResultHasTheSizeThatItsUserExpects) {
  GenerateRequest request;
  request.init_image = Blank(50, 45);
  const auto output = [&] {
    const Settings s = ResolveSettings(request, kDefaults, kChannels);
    return std::pair{s.output_width, s.output_height};
  };
  const std::pair<int64_t, int64_t> drawn = {48, 48}, own = {50, 45}, asked = {64, 64};
  EXPECT_EQ(output(), drawn);
  request.keep_size = true;
  EXPECT_EQ(output(), own);
  request.keep_size = false;
  request.mask = GreyImage{1, 1, {255}};
  EXPECT_EQ(output(), own) << "untouched pixels can only come out as they are at the picture's own size";
  request.blend = false;
  EXPECT_EQ(output(), drawn);
  request.blend = true;
  request.width = request.height = 64;
  EXPECT_EQ(output(), asked);
}

TEST(PictureSettings, AnEditsSizesAreTheOfficialOnes) {
  GenerateRequest request;
  request.input_images = {Blank(100, 100), Blank(300, 200)};
  const Settings plus = ResolveSettings(request, kDefaults, kChannels, Edits("edit-2509"));
  ASSERT_EQ(plus.references.size(), 2u);
  EXPECT_EQ(plus.references[0].vae, (ImageSize{128, 128}));
  EXPECT_EQ(plus.references[0].condition, (ImageSize{64, 64}));
  EXPECT_EQ(plus.references[1].vae, (ImageSize{160, 96}));
  EXPECT_EQ(plus.width, 160) << "of the last";
  EXPECT_EQ(plus.output_width, 160);
  request.width = 64;
  request.height = 48;
  const Settings sized = ResolveSettings(request, kDefaults, kChannels, Edits("edit-2509"));
  EXPECT_EQ(sized.width, 64);
  EXPECT_EQ(sized.references[1].vae, (ImageSize{160, 96}));

  GenerateRequest one;
  one.input_images = {Blank(300, 200)};
  const Settings edit = ResolveSettings(one, kDefaults, kChannels, Edits("edit"));
  EXPECT_EQ(edit.references[0].condition, edit.references[0].vae) << "Qwen-Image-Edit resizes once";
  EXPECT_EQ(Edits("edit").TemplateFor(edit.repairs), EditTemplate::kEdit);
  EXPECT_EQ(Edits("edit-2509").TemplateFor(plus.repairs), EditTemplate::kEditPlus);
  one.mask = GreyImage{1, 1, {255}};
  const Settings masked = ResolveSettings(one, kDefaults, kChannels, Edits("edit-2509"));
  EXPECT_EQ(masked.references[0].condition, masked.references[0].vae) << "as QwenImageEditInpaintPipeline";
  EXPECT_EQ(Edits("edit-2509").TemplateFor(masked.repairs), EditTemplate::kEdit);
}

TEST(PictureSettings, EditsThatAreImpossibleAreRefused) {
  const auto message = [](const GenerateRequest& request, const EditModel& edit) {
    try {
      ResolveSettings(request, kDefaults, kChannels, edit);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.message();
    }
    return std::string("(no error)");
  };
  GenerateRequest request;
  request.input_images = {Blank(64, 64), Blank(64, 64)};
  EXPECT_THAT(message(request, Edits("edit")), testing::HasSubstr("takes one input image, not 2"));
  EXPECT_THAT(message(request, {{Variant::kTextToImage, "model_index.json"}, EditAreas()}),
              testing::HasSubstr("not made for editing"));
  EXPECT_THAT(message(request, {{Variant::kUnknown, "no index"}, EditAreas()}),
              testing::HasSubstr("which variant it is: edit, edit-2509"));
  request.input_images.assign(9, Blank(64, 64));
  EXPECT_THAT(message(request, Edits("edit-2511")), testing::HasSubstr("at most 8"));
  request.input_images.assign(1, Blank(64, 64));
  request.mask = GreyImage{1, 1, {255}};
  request.width = request.height = 64;
  EXPECT_THAT(message(request, Edits("edit-2511")), testing::HasSubstr("size of its input image"));
  request.width = request.height = 128;
  EXPECT_EQ(message(request, Edits("edit-2511")), "(no error)");
}

TEST(PictureSettings, AResultIsNotSquashedToKeepASize) {
  GenerateRequest request;
  request.init_image = Blank(128, 128);
  request.keep_size = true;
  request.width = 64, request.height = 128;
  EXPECT_THAT(UsageError(request),
              testing::HasSubstr("64x128 would be squashed to keep the picture's size of 128x128"));
  request.width = 128;
  EXPECT_EQ(UsageError(request), "(no error)");
  request.width.reset(), request.height.reset();
  request.init_image = Blank(100, 37);  // 96x32: whole tokens, no wish of the user's
  EXPECT_EQ(UsageError(request), "(no error)");
}

TEST(PictureSettings, NotesSayWhatIsStretchedAndEnlarged) {
  GenerateRequest request;
  request.init_image = Blank(64, 32);
  const ModelTraits model{.note_on_size = [](ImageSize, bool edits) { return edits ? "a bad size" : ""; }};
  const auto notes = [&] {
    return SizeNotes(request, ResolveSettings(request, kDefaults, kChannels), model);
  };
  request.mask = GreyImage{2, 1, {255, 255}};
  EXPECT_THAT(notes(), testing::IsEmpty());
  request.mask = GreyImage{1, 2, {255, 255}};
  EXPECT_THAT(notes(), testing::ElementsAre(testing::HasSubstr("mask of 1x2 has another shape")));
  request.mask.reset();
  request.outpaint = {.right = 640, .bottom = 320};
  EXPECT_THAT(notes(), testing::ElementsAre(testing::HasSubstr("enlarged to 704x352")));
}

TEST(Settings, GivenSigmasAreTheSteps) {
  GenerateRequest request;
  request.sigmas = {1.0, 0.75, 0.25};
  const Settings s = ResolveSettings(request, kDefaults, kChannels);
  EXPECT_EQ(s.steps, 3);
  EXPECT_EQ(ScheduleOf({.shift = 1.0}, s).sigmas, (std::vector<float>{1.0f, 0.75f, 0.25f, 0.0f}));
  request.steps = 3;
  EXPECT_EQ(UsageError(request), "(no error)");
  request.steps = 4;
  EXPECT_THAT(UsageError(request), testing::HasSubstr("3 sigmas are 3 steps, not 4"));
  request.steps.reset();
  for (const std::vector<double>& wrong :
       {std::vector{1.0, 1.0}, std::vector{0.5, 0.6}, std::vector{1.5}, std::vector{1.0, 0.0},
        std::vector{std::nan("")}, std::vector<double>(1001, 0.5)}) {
    request.sigmas = wrong;
    EXPECT_THAT(UsageError(request), testing::HasSubstr("the sigmas are not valid"));
  }
}

TEST(Settings, AModelWithSigmasOfItsOwnTakesNoOtherNumberOfSteps) {
  const ModelTraits model{.defaults = kDefaults,
                          .sigmas = {1.0, 0.5},
                          .geometry = {.latent_channels = kChannels},
                          .max_prompt_tokens = kTokenizerMaxLength};
  GenerateRequest request;
  EXPECT_EQ(draw::ResolveSettings(request, model).steps, 2);
  request.sigmas = {1.0, 0.7, 0.4};
  EXPECT_EQ(draw::ResolveSettings(request, model).steps, 3);
  request.sigmas.clear();
  request.steps = 20;
  try {
    draw::ResolveSettings(request, model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr("fixed noise levels for 2 steps"));
  }
}

}  // namespace
}  // namespace qwen_image::draw

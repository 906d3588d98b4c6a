#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "c_api/testing.h"
#include "files/testing.h"
#include "qwen_image/c_api.h"
#include "qwen_image/image_file.h"
#include "qwen_image/instruction_set.h"
#include "qwen_image/qwen_image.h"

extern "C" int64_t StepsSeenFromC(const char* model);  // c99_check.c

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

// The same from C++.
GenerateRequest SmallCxxRequest() {
  GenerateRequest request;
  request.prompt = "a red circle";
  request.width = 64;
  request.height = 32;
  request.steps = 2;
  request.cfg = 1;
  return request;
}

TEST(CApi, DrawsWhatCxxDraws) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest();
  qwen_image_request_set_seed(request.get(), 7);
  qwen_image_request_set_cfg(request.get(), 2.5);
  qwen_image_request_set_negative_prompt(request.get(), "blue");
  const PictureHandle picture = Draw(pipeline, request);

  GenerateRequest same = SmallCxxRequest();
  same.seed = 7;
  same.cfg = 2.5;
  same.negative_prompt = "blue";
  EXPECT_EQ(PixelsOf(picture), Pipeline(kTiny).Generate(same).pixels);
  EXPECT_EQ(qwen_image_picture_width(picture.get()), 64);
  EXPECT_EQ(qwen_image_picture_height(picture.get()), 32);
  EXPECT_EQ(qwen_image_picture_seed(picture.get()), 7u);
  EXPECT_EQ(qwen_image_picture_steps(picture.get()), 2);
  EXPECT_EQ(qwen_image_picture_cfg(picture.get()), 2.5);
}

TEST(CApi, EditsWhatCxxEdits) {
  const Image input = Pipeline(kTiny).Generate(SmallCxxRequest()).image();
  const PipelineHandle pipeline = Open();
  ASSERT_EQ(qwen_image_pipeline_edits(pipeline.get()), 1);
  const RequestHandle request = SmallRequest();
  const uint8_t* pixels = input.pixels.data();
  ASSERT_EQ(qwen_image_request_add_input_image(request.get(), input.width, input.height, pixels),
            QWEN_IMAGE_OK);
  GenerateRequest same = SmallCxxRequest();
  same.input_images = {input};
  EXPECT_EQ(PixelsOf(Draw(pipeline, request)), Pipeline(kTiny).Generate(same).pixels);
}

TEST(CApi, RepairsWhatCxxRepairs) {
  const Image input = Pipeline(kTiny).Generate(SmallCxxRequest()).image();
  GreyImage mask{input.width, input.height, std::vector<uint8_t>(input.pixels.size() / 3, 0)};
  std::fill(mask.pixels.begin(), mask.pixels.begin() + mask.pixels.size() / 2, 255);
  GenerateRequest same = SmallCxxRequest();
  same.width = same.height = {};
  same.init_image = input;
  same.mask = mask;
  same.strength = 1;
  same.outpaint = {.left = 16, .top = 0, .right = 32, .bottom = 16};
  same.blend = false;
  same.keep_size = true;

  const PipelineHandle pipeline = Open();
  qwen_image_request* made = nullptr;
  ASSERT_EQ(qwen_image_request_new("", &made), QWEN_IMAGE_OK);
  const RequestHandle request(made);
  qwen_image_request_set_prompt(made, "a red circle");
  qwen_image_request_set_steps(made, 2);
  qwen_image_request_set_cfg(made, 1);
  qwen_image_request_set_init_image(made, input.width, input.height, input.pixels.data());
  qwen_image_request_set_mask(made, mask.width, mask.height, mask.pixels.data());
  qwen_image_request_set_strength(made, 1);
  qwen_image_request_set_outpaint(made, 16, 0, 32, 16);
  qwen_image_request_set_blend(made, 0);
  qwen_image_request_set_keep_size(made, 1);
  EXPECT_EQ(PixelsOf(Draw(pipeline, request)), Pipeline(kTiny).Generate(same).pixels);
}

TEST(CApi, KnowsTheModel) {
  const PipelineHandle pipeline = Open();
  const Pipeline same(kTiny);
  int64_t width = 0, height = 0, steps = 0;
  double cfg = 0;
  EXPECT_EQ(qwen_image_pipeline_defaults(pipeline.get(), &width, &height, &steps, &cfg), QWEN_IMAGE_OK);
  EXPECT_EQ(width, same.defaults().width);
  EXPECT_EQ(height, same.defaults().height);
  EXPECT_EQ(steps, same.defaults().steps);
  EXPECT_EQ(cfg, same.defaults().cfg);
  EXPECT_EQ(qwen_image_pipeline_defaults(pipeline.get(), nullptr, nullptr, nullptr, nullptr), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_pipeline_variant(pipeline.get()), same.variant());
  EXPECT_EQ(qwen_image_pipeline_negative_prompt(pipeline.get()), same.defaults().negative_prompt);
  EXPECT_EQ(qwen_image_pipeline_lightning(pipeline.get()), same.defaults().lightning ? 1 : 0);
  EXPECT_STREQ(qwen_image_version(), Version());
}

TEST(CApi, KeepsToAnInstructionSet) {
  EXPECT_EQ(qwen_image_use_instruction_set(InstructionSets().back().c_str()), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_use_instruction_set("avx1024"), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), testing::HasSubstr(InstructionSets().back()));
  EXPECT_EQ(qwen_image_use_instruction_set(nullptr), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_use_instruction_set("auto"), QWEN_IMAGE_OK);
}

TEST(CApi, OptionsReachTheModel) {
  qwen_image_options* made = nullptr;
  ASSERT_EQ(qwen_image_options_new(&made), QWEN_IMAGE_OK);
  const OptionsHandle options(made);
  EXPECT_EQ(qwen_image_options_set_threads(made, 1), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_options_set_precision(made, QWEN_IMAGE_EXACT), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_options_set_device(made, QWEN_IMAGE_DEVICE_CPU), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_options_set_check_memory(made, 0), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_options_set_variant(made, "edit-2509"), QWEN_IMAGE_OK);
  const std::pair<qwen_image_part, const char*> parts[] = {{QWEN_IMAGE_TRANSFORMER, "/transformer"},
                                                           {QWEN_IMAGE_TEXT_ENCODER, "/text_encoder"},
                                                           {QWEN_IMAGE_VAE, "/vae"},
                                                           {QWEN_IMAGE_TOKENIZER, "/tokenizer"},
                                                           {QWEN_IMAGE_VISION_ENCODER, "/text_encoder"}};
  for (const auto& [part, folder] : parts)
    EXPECT_EQ(qwen_image_options_set_part(made, part, (std::string(kTiny) + folder).c_str()), QWEN_IMAGE_OK);
  qwen_image_pipeline* opened = nullptr;
  ASSERT_EQ(qwen_image_pipeline_open(nullptr, made, &opened), QWEN_IMAGE_OK) << qwen_image_last_error();
  const PipelineHandle pipeline(opened);
  EXPECT_STREQ(qwen_image_pipeline_variant(opened), "edit-2509");

  qwen_image_options_add_lora(made, "no-such-lora.safetensors", 1.0);
  EXPECT_EQ(qwen_image_pipeline_open(nullptr, made, &opened), QWEN_IMAGE_BAD_INPUT);
  EXPECT_EQ(opened, nullptr);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("no-such-lora"));
}

TEST(CApi, PicturesAreWrittenAndRead) {
  const TempFolder folder;
  const std::string path = folder.path() / "circle.png";
  const PictureHandle drawn = Draw(Open(), SmallRequest());
  ASSERT_EQ(qwen_image_picture_save_png(drawn.get(), path.c_str()), QWEN_IMAGE_OK);
  EXPECT_EQ(ReadImage(path).image.pixels, PixelsOf(drawn));
  qwen_image_picture* read = nullptr;
  ASSERT_EQ(qwen_image_picture_read(path.c_str(), &read), QWEN_IMAGE_OK);
  const PictureHandle picture(read);
  EXPECT_EQ(PixelsOf(picture), PixelsOf(drawn));
  EXPECT_EQ(qwen_image_picture_steps(read), 0);

  const std::string nowhere = folder.path() / "no/such/folder.png";
  EXPECT_EQ(qwen_image_picture_save_png(drawn.get(), nowhere.c_str()), QWEN_IMAGE_CANNOT_WRITE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("no/such"));
  EXPECT_EQ(qwen_image_picture_read(nowhere.c_str(), &read), QWEN_IMAGE_BAD_INPUT);
  EXPECT_EQ(read, nullptr);
}

struct Seen {
  std::vector<int> stages;
  std::vector<int64_t> steps;
  std::vector<Image> previews;
  int64_t stop_at = -1;  // this step, or this many previews
};

int SeeProgress(void* user_data, const qwen_image_progress* progress) {
  auto& seen = *static_cast<Seen*>(user_data);
  if (seen.stages.empty() || seen.stages.back() != progress->stage) seen.stages.push_back(progress->stage);
  const bool denoise = progress->stage == QWEN_IMAGE_DENOISE;
  if (denoise && (seen.steps.empty() || seen.steps.back() != progress->step))
    seen.steps.push_back(progress->step);
  EXPECT_EQ(progress->steps, 3);
  EXPECT_TRUE(progress->fraction >= 0 && progress->fraction <= 1) << progress->fraction;
  return denoise && progress->step == seen.stop_at ? 1 : 0;
}

int SeePreview(void* user_data, int64_t width, int64_t height, const uint8_t* rgb) {
  auto& seen = *static_cast<Seen*>(user_data);
  seen.previews.push_back({width, height, {rgb, rgb + 3 * width * height}});
  return static_cast<int64_t>(seen.previews.size()) == seen.stop_at ? 1 : 0;
}

TEST(CApi, CallbacksSeeTheWork) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest(3);
  Seen progress, previews;
  qwen_image_request_set_progress(request.get(), SeeProgress, &progress);
  qwen_image_request_set_preview(request.get(), SeePreview, &previews);
  Draw(pipeline, request);
  EXPECT_THAT(progress.stages,
              ::testing::ElementsAre(QWEN_IMAGE_ENCODE_PROMPT, QWEN_IMAGE_DENOISE, QWEN_IMAGE_DECODE));
  EXPECT_THAT(progress.steps, ::testing::ElementsAre(0, 1, 2, 3));
  std::vector<Image> expected;
  GenerateRequest same = SmallCxxRequest();
  same.steps = 3;
  Pipeline(kTiny).Generate(
      same, {.on_progress = {}, .on_preview = [&](const Image& image) { expected.push_back(image); }});
  ASSERT_EQ(previews.previews.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(previews.previews[i].pixels, expected[i].pixels);
}

TEST(CApi, CallbacksStopTheWork) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest(3);
  Seen progress{.stop_at = 1}, previews{.stop_at = 1};
  qwen_image_picture* picture = nullptr;
  qwen_image_request_set_progress(request.get(), SeeProgress, &progress);
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_INTERRUPTED);
  EXPECT_EQ(picture, nullptr);
  EXPECT_THAT(progress.steps, ::testing::ElementsAre(0, 1)) << "nothing is computed after the stop";

  qwen_image_request_set_progress(request.get(), nullptr, nullptr);
  qwen_image_request_set_preview(request.get(), SeePreview, &previews);
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_INTERRUPTED);
  EXPECT_EQ(previews.previews.size(), 1u);
  qwen_image_request_set_preview(request.get(), nullptr, nullptr);
  Draw(pipeline, request);  // the pipeline is as good as before
  EXPECT_EQ(StepsSeenFromC(kTiny), Pipeline(kTiny).defaults().steps);
}

TEST(CApi, ExceptionsOfCallbacksDoNotEscape) {
  const PipelineHandle pipeline = Open();
  const RequestHandle request = SmallRequest();
  qwen_image_picture* picture = nullptr;
  qwen_image_request_set_progress(
      request.get(), [](void*, const qwen_image_progress*) -> int { throw std::runtime_error("my own"); },
      nullptr);
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_INTERNAL);
  EXPECT_STREQ(qwen_image_last_error(), "my own");
  qwen_image_request_set_progress(
      request.get(), [](void*, const qwen_image_progress*) -> int { throw 7; }, nullptr);
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_INTERNAL);
  EXPECT_EQ(picture, nullptr);
}

TEST(CApi, NullsAreRefused) {
  const RequestHandle some_request = SmallRequest();
  qwen_image_request* request = some_request.get();
  qwen_image_options* made = nullptr;
  qwen_image_options_new(&made);
  const OptionsHandle options(made);
  const PipelineHandle pipeline = Open();
  qwen_image_picture* picture = nullptr;
  qwen_image_request* new_request = nullptr;
  const uint8_t pixel[3] = {};
  const int64_t one = 1;
  const float zero = 0;
  const std::pair<const char*, std::function<qwen_image_status()>> calls[] = {
      {"options", [] { return qwen_image_options_new(nullptr); }},
      {"options", [] { return qwen_image_options_set_threads(nullptr, 1); }},
      {"options", [] { return qwen_image_options_set_precision(nullptr, QWEN_IMAGE_EXACT); }},
      {"options", [] { return qwen_image_options_set_device(nullptr, QWEN_IMAGE_DEVICE_CPU); }},
      {"options", [] { return qwen_image_options_set_check_memory(nullptr, 1); }},
      {"options", [] { return qwen_image_options_set_prompt_cache(nullptr, "x"); }},
      {"folder", [&] { return qwen_image_options_set_prompt_cache(made, nullptr); }},
      {"options", [] { return qwen_image_options_set_part(nullptr, QWEN_IMAGE_VAE, "x"); }},
      {"path", [&] { return qwen_image_options_set_part(made, QWEN_IMAGE_VAE, nullptr); }},
      {"options", [] { return qwen_image_options_set_variant(nullptr, "x"); }},
      {"variant", [&] { return qwen_image_options_set_variant(made, nullptr); }},
      {"options", [] { return qwen_image_options_add_lora(nullptr, "x", 1); }},
      {"path", [&] { return qwen_image_options_add_lora(made, nullptr, 1); }},
      {"pipeline", [] { return qwen_image_pipeline_open(kTiny, nullptr, nullptr); }},
      {"pipeline", [] { return qwen_image_pipeline_defaults(nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"request", [] { return qwen_image_request_new("x", nullptr); }},
      {"prompt", [&] { return qwen_image_request_new(nullptr, &new_request); }},
      {"request", [] { return qwen_image_request_set_prompt(nullptr, "x"); }},
      {"prompt", [&] { return qwen_image_request_set_prompt(request, nullptr); }},
      {"request", [] { return qwen_image_request_set_negative_prompt(nullptr, "x"); }},
      {"negative_prompt", [&] { return qwen_image_request_set_negative_prompt(request, nullptr); }},
      {"request", [] { return qwen_image_request_set_size(nullptr, 16, 16); }},
      {"request", [] { return qwen_image_request_set_steps(nullptr, 1); }},
      {"request", [] { return qwen_image_request_set_cfg(nullptr, 1); }},
      {"request", [] { return qwen_image_request_set_seed(nullptr, 1); }},
      {"request", [&] { return qwen_image_request_add_input_image(nullptr, 1, 1, pixel); }},
      {"pixels", [&] { return qwen_image_request_add_input_image(request, 1, 1, nullptr); }},
      {"request", [&] { return qwen_image_request_set_init_image(nullptr, 1, 1, pixel); }},
      {"pixels", [&] { return qwen_image_request_set_init_image(request, 1, 1, nullptr); }},
      {"request", [&] { return qwen_image_request_set_mask(nullptr, 1, 1, pixel); }},
      {"pixels", [&] { return qwen_image_request_set_mask(request, 1, 1, nullptr); }},
      {"request", [] { return qwen_image_request_set_strength(nullptr, 1); }},
      {"request", [] { return qwen_image_request_set_outpaint(nullptr, 1, 1, 1, 1); }},
      {"request", [] { return qwen_image_request_set_blend(nullptr, 1); }},
      {"request", [] { return qwen_image_request_set_keep_size(nullptr, 1); }},
      {"request", [] { return qwen_image_request_set_progress(nullptr, SeeProgress, nullptr); }},
      {"request", [] { return qwen_image_request_set_preview(nullptr, SeePreview, nullptr); }},
      {"request", [] { return qwen_image_request_read_mask(nullptr, "x.png"); }},
      {"path", [&] { return qwen_image_request_read_mask(request, nullptr); }},
      {"request", [] { return qwen_image_request_clear_input_images(nullptr); }},
      {"request", [] { return qwen_image_request_clear_init_image(nullptr); }},
      {"request", [] { return qwen_image_request_clear_mask(nullptr); }},
      {"request", [] { return qwen_image_request_set_step_cache(nullptr, 0.1); }},
      {"request", [&] { return qwen_image_request_set_latents(nullptr, &one, 1, &zero); }},
      {"shape", [&] { return qwen_image_request_set_latents(request, nullptr, 1, &zero); }},
      {"values", [&] { return qwen_image_request_set_latents(request, &one, 1, nullptr); }},
      {"request", [] { return qwen_image_request_set_resume_folder(nullptr, "x"); }},
      {"folder", [&] { return qwen_image_request_set_resume_folder(request, nullptr); }},
      {"picture", [] { return qwen_image_picture_seconds(nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"picture", [] { return qwen_image_picture_remove_resume_state(nullptr); }},
      {"pipeline", [&] { return qwen_image_check(nullptr, request); }},
      {"request", [&] { return qwen_image_check(pipeline.get(), nullptr); }},
      {"pipeline", [&] { return qwen_image_generate(nullptr, request, &picture); }},
      {"request", [&] { return qwen_image_generate(pipeline.get(), nullptr, &picture); }},
      {"picture", [&] { return qwen_image_generate(pipeline.get(), request, nullptr); }},
      {"path", [&] { return qwen_image_picture_read(nullptr, &picture); }},
      {"picture", [] { return qwen_image_picture_read("x.png", nullptr); }},
      {"picture", [] { return qwen_image_picture_save_png(nullptr, "x.png"); }},
  };
  int number = 0;
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(call(), QWEN_IMAGE_USAGE) << number;
    EXPECT_EQ(qwen_image_last_error(), std::string(name) + " is NULL") << number;
    ++number;
  }
  EXPECT_EQ(new_request, nullptr);
  EXPECT_EQ(qwen_image_picture_pixels(nullptr), nullptr);
  EXPECT_EQ(qwen_image_picture_width(nullptr) + qwen_image_picture_height(nullptr), 0);
  EXPECT_EQ(qwen_image_pipeline_edits(nullptr) + qwen_image_pipeline_threads(nullptr), 0);
  EXPECT_EQ(qwen_image_picture_note_count(nullptr) + qwen_image_picture_steps_resumed(nullptr), 0);
  EXPECT_EQ(qwen_image_picture_prompt_truncated(nullptr), 0);
  EXPECT_EQ(qwen_image_picture_alignment(nullptr), nullptr);
  EXPECT_STREQ(qwen_image_picture_note(nullptr, 0), "");
  EXPECT_STREQ(qwen_image_picture_settings(nullptr), "");
  EXPECT_STREQ(qwen_image_pipeline_variant(nullptr), "");
  EXPECT_STREQ(qwen_image_pipeline_negative_prompt(nullptr), "");
  EXPECT_EQ(qwen_image_pipeline_lightning(nullptr), 0);
  EXPECT_STREQ(qwen_image_picture_resume_file(nullptr), "");
  qwen_image_options_free(nullptr);
  qwen_image_pipeline_free(nullptr);
  qwen_image_request_free(nullptr);
  qwen_image_picture_free(nullptr);
}

TEST(CApi, WrongValuesAreRefused) {
  const PipelineHandle pipeline = Open();
  const auto checked = [&](const std::function<void(qwen_image_request*)>& spoil) {
    const RequestHandle request = SmallRequest();
    spoil(request.get());
    qwen_image_picture* picture = nullptr;
    const qwen_image_status drawn = qwen_image_generate(pipeline.get(), request.get(), &picture);
    EXPECT_EQ(picture, nullptr);
    EXPECT_EQ(qwen_image_check(pipeline.get(), request.get()), drawn);
    return drawn;
  };
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_size(r, 100, 100); }), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("100x100"));
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_size(r, INT64_MIN, INT64_MAX); }), QWEN_IMAGE_USAGE);
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_steps(r, 0); }), QWEN_IMAGE_USAGE);
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_cfg(r, NAN); }), QWEN_IMAGE_USAGE);
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_strength(r, 2); }), QWEN_IMAGE_USAGE);
  EXPECT_EQ(checked([](auto* r) { qwen_image_request_set_outpaint(r, -1, 0, 0, INT64_MAX); }),
            QWEN_IMAGE_USAGE);

  const RequestHandle request = SmallRequest();
  const uint8_t pixel[3] = {};
  constexpr int64_t kSides[] = {0, -1, 16385, int64_t{1} << 62};
  for (const int64_t side : kSides) {
    EXPECT_EQ(qwen_image_request_add_input_image(request.get(), side, 1, pixel), QWEN_IMAGE_USAGE) << side;
    EXPECT_EQ(qwen_image_request_set_init_image(request.get(), 1, side, pixel), QWEN_IMAGE_USAGE) << side;
    EXPECT_EQ(qwen_image_request_set_mask(request.get(), side, side, pixel), QWEN_IMAGE_USAGE) << side;
  }
  EXPECT_EQ(qwen_image_request_set_mask(request.get(), 16384, 16384, pixel), QWEN_IMAGE_USAGE)
      << "too many pixels";

  qwen_image_options* made = nullptr;
  qwen_image_options_new(&made);
  const OptionsHandle options(made);
  for (const int threads : {-1, 1025, INT_MIN, INT_MAX})
    EXPECT_EQ(qwen_image_options_set_threads(made, threads), QWEN_IMAGE_USAGE) << threads;
  EXPECT_EQ(qwen_image_options_set_precision(made, 3), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_options_set_device(made, 4), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_options_set_device(made, -1), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_options_set_part(made, 7, "x"), QWEN_IMAGE_USAGE);
  qwen_image_pipeline* opened = nullptr;
  EXPECT_EQ(qwen_image_pipeline_open(nullptr, made, &opened), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_pipeline_open("/no/such/model", made, &opened), QWEN_IMAGE_BAD_INPUT);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("/no/such/model"));
  EXPECT_EQ(opened, nullptr);
}

TEST(CApi, ErrorsBelongToTheirThread) {
  qwen_image_options_new(nullptr);
  std::thread([] {
    EXPECT_STREQ(qwen_image_last_error(), "");
    qwen_image_request_new(nullptr, nullptr);
    EXPECT_STREQ(qwen_image_last_error(), "request is NULL");
  }).join();
  EXPECT_STREQ(qwen_image_last_error(), "options is NULL");
}

}  // namespace
}  // namespace qwen_image

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <utility>

#include "draw/opened_model.h"
#include "draw/resume.h"
#include "draw/run_identity.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "options/field.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTiny = QWEN_IMAGE_SOURCE_DIR "/models/tiny";

GenerateRequest SmallRequest() {
  GenerateRequest request;
  request.prompt = "a red circle";
  request.width = request.height = 32;
  request.steps = 1;
  request.cfg = 1;
  return request;
}

TEST(Pipeline, OpensWhateverTypeTheNameHas) {
  const std::string name = kTiny;
  Pipeline pipeline(name);
  const Picture expected = pipeline.Generate(SmallRequest());
  pipeline = Pipeline(std::filesystem::path(name), {.threads = 1});
  EXPECT_EQ(pipeline.threads(), 1);
  EXPECT_EQ(pipeline.Generate(SmallRequest()).pixels, expected.pixels);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [] { Pipeline(static_cast<const char*>(nullptr)); }),
              HasSubstr("no model was named"));
}

TEST(Pipeline, TellsWhichSizesItTakesAndWhereItComputes) {
  const Pipeline pipeline(kTiny);
  EXPECT_NE(pipeline.device(), Device::kAuto);
  GenerateRequest request = SmallRequest();
  request.width = 2 * pipeline.side_multiple();
  pipeline.Check(request);
  request.width = *request.width + pipeline.side_multiple() / 2;
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { pipeline.Check(request); }), HasSubstr("multiple"));
}

TEST(Pipeline, ThreadsHaveLimits) {
  for (const int threads : {INT_MIN, -5, -1, 1025, 1'000'000, INT_MAX}) {
    EXPECT_THAT(
        MessageOf(ErrorKind::kUsage, [&] { Pipeline(kTiny, {.threads = threads}); }),
        HasSubstr("threads must be from 1 to 1024, or 0 for all processors, not " + std::to_string(threads)));
  }
}

TEST(Pipeline, SavedPicturesCarryTheirSettings) {
  const TempFolder folder;
  const auto path = folder.path() / "out.png";
  const Pipeline pipeline(kTiny, {.precision = Precision::kExact});
  const auto record = [&](const GenerateRequest& request) {
    pipeline.Generate(request).SavePng(path);
    return Json::parse(ReadPngText(path).at("qwen-image"));
  };
  GenerateRequest request = SmallRequest();
  const Json plain = record(request);
  EXPECT_EQ(plain["model"], "tiny");
  EXPECT_EQ(plain["precision"], "exact");
  EXPECT_EQ(plain["prompt"], "a red circle");
  for (const char* source : {"input_images", "init_image", "mask", "latents"})
    EXPECT_FALSE(plain.contains(source)) << source;

  // What they were made from has no name here, but that there was something is said.
  const Image image{32, 32, std::vector<uint8_t>(3 * 32 * 32, 99)};
  request.init_image = image;
  request.mask = GreyImage{1, 1, {255}};
  request.latents = InitialLatents{{1, 4, 64}, std::vector<float>(4 * 64, 0.5f)};
  const Json repaired = record(request);
  EXPECT_EQ(repaired["init_image"], "given");
  EXPECT_EQ(repaired["mask"], "given-mask");
  EXPECT_EQ(repaired["latents"], "given-latents");
  request = SmallRequest();
  request.input_images = {image, image};
  EXPECT_EQ(record(request)["input_images"], Json({"given-1", "given-2"}));
}

std::string IdentityOf(const Pipeline& pipeline, const GenerateRequest& request) {
  const OpenedModel& opened = ModelOf(pipeline);
  const Settings settings = opened.Resolve(request);
  keep::Identities identities(*opened.model, opened.device, opened.precision);
  return RunIdentity(identities, request, settings, ScheduleOf(opened.model->traits().scheduler, settings));
}

// A run that was killed must not go on with pictures that are encoded in another way.
TEST(Pipeline, TilingDecidesTheLatentsOfPictures) {
  const Pipeline pipeline(kTiny);
  GenerateRequest request = SmallRequest();
  const auto with = [&](GenerateRequest::Tiling tiling) {
    request.vae_tiling = tiling;
    return std::pair(IdentityOf(pipeline, request), pipeline.RunId(request));
  };
  using Tiling = GenerateRequest::Tiling;
  EXPECT_EQ(with(Tiling::kOn).first, with(Tiling::kOff).first) << "a picture from noise alone is not encoded";
  EXPECT_NE(with(Tiling::kOn).second, with(Tiling::kOff).second) << "but decoded";
  const Image image{32, 32, std::vector<uint8_t>(3 * 32 * 32, 99)};
  request.init_image = image;
  EXPECT_NE(with(Tiling::kOn).first, with(Tiling::kOff).first);
  EXPECT_EQ(with(Tiling::kAuto).first, with(Tiling::kOff).first) << "so small a picture is not tiled";
  request = SmallRequest();
  request.input_images = {image};
  EXPECT_NE(with(Tiling::kOn).first, with(Tiling::kOff).first);
}

// What each setting decides is what tells runs apart.
TEST(Pipeline, EverySettingIsInTheIdentityAsDeclared) {
  const Pipeline pipeline(kTiny);
  const Image image{32, 32, std::vector<uint8_t>(3 * 32 * 32, 99)};
  GenerateRequest base = SmallRequest();
  base.cfg = 2;
  base.init_image = image;
  base.mask = GreyImage{1, 1, {255}};
  const std::map<std::string, std::function<void(GenerateRequest&)>> changes = {
      {"prompt", [](GenerateRequest& r) { r.prompt = "a star"; }},
      {"negative_prompt", [](GenerateRequest& r) { r.negative_prompt = "blurry"; }},
      {"width", [](GenerateRequest& r) { r.width = 48; }},
      {"height", [](GenerateRequest& r) { r.height = 48; }},
      {"steps", [](GenerateRequest& r) { r.steps = 3; }},
      {"sigmas", [](GenerateRequest& r) { r.sigmas = {0.5}; }},
      {"cfg", [](GenerateRequest& r) { r.cfg = 3; }},
      {"seed", [](GenerateRequest& r) { r.seed = 1; }},
      {"latents",
       [](GenerateRequest& r) {
         r.latents = InitialLatents{{1, 4, 64}, std::vector<float>(256, 1)};
       }},
      {"input_images",
       [&](GenerateRequest& r) {
         r.input_images = {image}, r.init_image.reset(), r.width.reset(), r.height.reset();
       }},
      {"init_image", [](GenerateRequest& r) { r.init_image->pixels[0] = 1; }},
      {"mask", [](GenerateRequest& r) { r.mask->pixels[0] = 200; }},
      {"outpaint", [](GenerateRequest& r) { r.outpaint.left = 16; }},
      {"strength", [](GenerateRequest& r) { r.strength = 1; }},
      {"blend", [](GenerateRequest& r) { r.blend = false; }},
      {"keep_size",
       [](GenerateRequest& r) {
         r.keep_size = true, r.init_image = Image{33, 33, std::vector<uint8_t>(3 * 33 * 33, 99)};
       }},
      {"max_sequence_length", [](GenerateRequest& r) { r.max_sequence_length = 2; }},
      {"reference_special_tokens", [](GenerateRequest& r) { r.reference_special_tokens = true; }},
      {"vae_tiling", [](GenerateRequest& r) { r.vae_tiling = GenerateRequest::Tiling::kOn; }},
      {"step_cache", [](GenerateRequest& r) { r.step_cache = 0.1; }},
      {"resume_folder", [](GenerateRequest& r) { r.resume_folder = "x"; }}};
  for (const options::Field& field : options::Fields()) {
    SCOPED_TRACE(field.name);
    if (field.name == std::string_view("background")) continue;  // of models with alpha only
    ASSERT_TRUE(changes.contains(field.name)) << "say here how it can be changed";
    GenerateRequest changed = base;
    changes.at(field.name)(changed);
    const bool nothing = field.decides == options::Decides::kNothing;
    EXPECT_EQ(pipeline.RunId(changed) == pipeline.RunId(base), nothing);
    if (field.decides == options::Decides::kLatents || field.decides == options::Decides::kLatentsOfSources) {
      EXPECT_NE(IdentityOf(pipeline, changed), IdentityOf(pipeline, base));
    }
    if (field.name == std::string_view("blend")) {
      EXPECT_EQ(IdentityOf(pipeline, changed), IdentityOf(pipeline, base)) << "the latents are the same";
    }
  }
}

TEST(Pipeline, TheLastReportOfProgressIsTheWhole) {
  const Pipeline pipeline(kTiny);
  Progress last;
  pipeline.Generate(SmallRequest(), {.on_progress = [&](const Progress& p) { last = p; }, .on_note = {}});
  EXPECT_EQ(last.stage, Progress::Stage::kDecode);
  EXPECT_EQ(last.step, 1);
  EXPECT_EQ(last.fraction, 1);
}

}  // namespace
}  // namespace qwen_image::draw

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <utility>

#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {
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

TEST(Pipeline, TheLastReportOfProgressIsTheWhole) {
  const Pipeline pipeline(kTiny);
  Progress last;
  pipeline.Generate(SmallRequest(), {.on_progress = [&](const Progress& p) { last = p; }, .on_note = {}});
  EXPECT_EQ(last.stage, Progress::Stage::kDecode);
  EXPECT_EQ(last.step, 1);
  EXPECT_EQ(last.fraction, 1);
}

}  // namespace
}  // namespace qwen_image

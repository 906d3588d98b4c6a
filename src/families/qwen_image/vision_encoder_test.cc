// The vision encoder and prompts with pictures against the official classes.
#include "families/qwen_image/vision_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "families/qwen_image/vision_testing.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

constexpr double kWhole = 1e-8, kIsolated = 1e-10;

PromptImages ImagesOf(const VisionCase& c, const Tensor& embeds) {
  return {.embeds = embeds, .grids = c.grids, .image_token = kGoldenImageToken};
}

Tensor EncodeWithImages(const TextEncoder& text, const VisionCase& c, const Tensor& embeds,
                        const Tap& tap = {}) {
  ThreadPool pool(2);
  const CancelFlag never;
  return text.Encode(c.input_ids, ImagesOf(c, embeds), {pool, never}, tap);
}

class VisionGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(VisionGolden, EmbedsPicturesAsTheOfficialClass) {
  const std::string model = GetParam();
  const ExpectedTensors expected(model);
  const VisionEncoder vision = LoadVisionEncoder(kVisionGoldens / model);
  const std::vector<VisionCase> cases = ReadVisionCases(model);
  ASSERT_EQ(cases.size(), 5u);
  for (const VisionCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Tensor got = EncodeVision(vision, c), want = expected.Get(c.name + "/model.visual");
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_LE(Nmse(got.data(), want.data(), want.size()), kWhole);
    EXPECT_TRUE(SameBits(got.data(), EncodeVision(vision, c, 1).data(), got.size())) << "threads";
  }
}

TEST_P(VisionGolden, EncodesPromptsWithPicturesAsTheOfficialClass) {
  const std::string model = GetParam();
  const ExpectedTensors expected(model);
  const TextEncoder text = LoadTextEncoder(kVisionGoldens / model);
  for (const VisionCase& c : ReadVisionCases(model)) {
    SCOPED_TRACE(c.name);
    const Tensor embeds = expected.Get(c.name + "/model.visual");
    const PromptImages images = ImagesOf(c, embeds);
    EXPECT_EQ(GetRopeIndex(c.input_ids, &images), c.position_ids);
    const Tensor got = EncodeWithImages(text, c, embeds), want = expected.Get(c.name + "/hidden_states");
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_LE(Nmse(got.data(), want.data(), want.size()), kWhole);
  }
}

TEST_P(VisionGolden, PicturesDoNotSeeEachOther) {
  const VisionEncoder vision = LoadVisionEncoder(kVisionGoldens / GetParam());
  const VisionCase all = FindVisionCase(GetParam(), "three");
  const Tensor together = EncodeVision(vision, all);
  const Tensor pixels = GoldenPixels(all.grids, vision.config().patch_values(), all.pixel_seed);
  ThreadPool pool(2);
  const CancelFlag never;
  int64_t patch = 0, token = 0;
  for (const ImageGrid& grid : all.grids) {
    Tensor own({grid.patches(), pixels.dim(1)});
    std::copy_n(pixels.row(patch), own.size(), own.data());
    const Tensor alone = vision.Encode(own, {&grid, 1}, {pool, never});
    EXPECT_TRUE(SameBits(alone.data(), together.row(token), alone.size())) << token;
    patch += grid.patches();
    token += grid.tokens();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VisionGolden, ::testing::Values("nested", "flat"),
                         [](const auto& info) { return std::string(info.param); });

// Compares every checkpoint with the official one, then puts that in its place: so each error is the layer's
// own.
class Substitute : public CheckpointSink {
 public:
  explicit Substitute(const ExpectedTensors& expected) : expected_(expected) {}

  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const std::string golden = "two/" + SameOutput(name);
    if (!expected_.all().contains(golden)) {
      unknown.insert(name);
      return;
    }
    seen.insert(golden);
    const Tensor want = expected_.Get(golden);
    ASSERT_EQ(view.shape, want.shape()) << name;
    float* const got = std::get<float*>(view.data);
    EXPECT_LE(Nmse(got, want.data(), want.size()), kIsolated) << name;
    std::copy_n(want.data(), want.size(), got);
  }

  std::set<std::string> seen, unknown;

 private:
  // Modules that return what their last part returns.
  static std::string SameOutput(const std::string& name) {
    for (const char* part : {".attn.proj", ".mlp.down_proj", ".merger.mlp.2"}) {
      if (name.find(".visual.") != name.npos && name.ends_with(part))
        return name.substr(0, name.size() - std::strlen(part)) +
               std::string(part, std::strchr(part + 1, '.'));
    }
    return name;
  }

  const ExpectedTensors& expected_;
};

TEST(VisionEncoder, EveryLayerIsTheOfficialOne) {
  const ExpectedTensors expected("nested");
  const VisionCase c = FindVisionCase("nested", "two");
  Substitute sink(expected);
  const Tensor embeds = EncodeVision(LoadVisionEncoder(kVisionGoldens / "nested"), c, 2, Tap(&sink));
  EXPECT_TRUE(sink.unknown.empty()) << *sink.unknown.begin();
  EncodeWithImages(LoadTextEncoder(kVisionGoldens / "nested"), c, embeds, Tap(&sink));
  for (const auto& [name, tensor] : expected.all()) {
    if (name.starts_with("two/model.")) {
      EXPECT_TRUE(sink.seen.contains(name)) << name;
    }
  }
}

TEST(VisionEncoder, RefusesGridsThatDoNotFitThePixels) {
  const VisionEncoder vision = LoadVisionEncoder(kVisionGoldens / "nested");
  ThreadPool pool(1);
  const CancelFlag never;
  const auto message = [&](std::vector<ImageGrid> grids, const Shape& pixels) {
    return MessageOf(ErrorKind::kUsage, [&] { vision.Encode(Tensor(pixels), grids, {pool, never}); });
  };
  EXPECT_THAT(message({{1, 4, 5}}, {20, 96}), HasSubstr("1 x 4 x 5 patches"));
  EXPECT_THAT(message({{1, 3, 4}}, {12, 96}), HasSubstr("multiple of 2"));
  EXPECT_THAT(message({{1, 0, 4}}, {0, 96}), HasSubstr("1 x 0 x 4"));
  EXPECT_THAT(message({{0, 4, 4}}, {0, 96}), HasSubstr("0 x 4 x 4"));
  EXPECT_THAT(message({{1, int64_t{1} << 40, int64_t{1} << 40}}, {16, 96}), HasSubstr("patches"));
  EXPECT_THAT(message({{1, 4, 4}}, {20, 96}), HasSubstr("[20, 96] for 1 pictures, which need [16, 96]"));
  EXPECT_THAT(message({{1, 4, 4}}, {16, 95}), HasSubstr("which need [16, 96]"));
  EXPECT_THAT(message({}, {0, 96}), HasSubstr("for 0 pictures"));
}

TEST(VisionEncoder, StopsWhenCancelled) {
  const VisionEncoder vision = LoadVisionEncoder(kVisionGoldens / "nested");
  const VisionCase c = FindVisionCase("nested", "landscape");
  ThreadPool pool(1);
  CancelFlag cancel;
  std::vector<double> progress;
  const Tensor pixels = GoldenPixels(c.grids, vision.config().patch_values(), c.pixel_seed);
  vision.Encode(pixels, c.grids, {pool, cancel, [&](double fraction) { progress.push_back(fraction); }});
  EXPECT_EQ(progress, (std::vector<double>{0, 0.5}));
  cancel.Cancel();
  MessageOf(ErrorKind::kInterrupted, [&] { vision.Encode(pixels, c.grids, {pool, cancel}); });
}

TEST(PromptImages, MustFitThePrompt) {
  const TextEncoder text = LoadTextEncoder(kVisionGoldens / "nested");
  const ExpectedTensors expected("nested");
  const VisionCase two = FindVisionCase("nested", "two");
  const Tensor embeds = expected.Get("two/model.visual");
  const auto message = [&](const VisionCase& c, const Tensor& given) {
    return MessageOf(ErrorKind::kBadInput, [&] { EncodeWithImages(text, c, given); });
  };
  VisionCase c = two;
  c.grids.pop_back();
  EXPECT_THAT(message(c, embeds), HasSubstr("7 image tokens, but its 1 pictures need 4"));
  c.grids = {two.grids[0], two.grids[1], {1, 2, 2}};
  EXPECT_THAT(message(c, embeds), HasSubstr("7 image tokens, but its 3 pictures need 8"));
  c.grids = {two.grids[1], two.grids[0]};
  EXPECT_THAT(message(c, embeds),
              HasSubstr("picture 1 has 4 image tokens in the prompt, but its grid of 2 x 6"));
  c = two;
  c.input_ids = {1, 2};
  EXPECT_THAT(message(c, embeds), HasSubstr("0 image tokens, but its 2 pictures need 7"));
  EXPECT_THAT(message(two, Tensor({8, 16})), HasSubstr("7 image tokens, but its 2 pictures need 8"));
  EXPECT_THAT(message(two, Tensor({7, 24})),
              HasSubstr("embeddings [7, 24], but the text encoder is 16 wide"));
}

TEST(PromptImages, NeedAnMropeSectionForEveryFrequency) {
  const TempFolder folder;
  folder.Write("model.safetensors", ReadBytes(kVisionGoldens / "nested/model.safetensors"));
  Json config = ReadJsonFile(kVisionGoldens / "nested/config.json");
  const VisionCase c = FindVisionCase("nested", "two");
  const Tensor embeds = ExpectedTensors("nested").Get("two/model.visual");
  Json& rope = config["text_config"]["rope_parameters"];
  for (const Json& section : {Json{1, 1, 1}, Json{2, 2, 2}, Json{0}}) {
    rope["mrope_section"] = section;
    folder.Write("config.json", config.dump());
    const TextEncoder text = LoadTextEncoder(folder.path());
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { EncodeWithImages(text, c, embeds); }),
                HasSubstr("does not share the 4 frequencies"));
    ThreadPool pool(1);
    const CancelFlag never;
    EXPECT_NO_THROW(text.Encode({1, 2, 3}, {pool, never}));  // text alone needs none
  }
}

TEST(GetRopeIndex, CountsTextOnAllAxes) {
  const std::vector<int64_t> ids = {7, 60, 9};
  EXPECT_EQ(GetRopeIndex(ids, nullptr), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

}  // namespace
}  // namespace qwen_image

// Both encoders against the official classes, whole and layer by layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "families/qwen_image_21/encoders_testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::HasSubstr;

constexpr double kWhole = 1e-8, kIsolated = 1e-10;

void ExpectNear(const Tensor& got, const Tensor& want, double nmse = kWhole) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_LE(Nmse(got.data(), want.data(), want.size()), nmse);
}

// What the vision encoder gives, as the official one gave it.
std::vector<Tensor> ExpectedFeatures(const GoldenTensors& expected, const VisionCase& c) {
  std::vector<Tensor> features;
  if (c.grids.empty()) return features;
  features.push_back(expected.Get(c.name + "/model.visual"));
  for (int i = 0; expected.all().contains(c.name + "/deepstack." + std::to_string(i)); ++i)
    features.push_back(expected.Get(c.name + "/deepstack." + std::to_string(i)));
  return features;
}

class EncoderGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(EncoderGoldens, PicturesAreEmbeddedAsByTheOfficialClass) {
  const std::string model = GetParam();
  const GoldenTensors expected = ExpectedOf(model);
  const VisionEncoder vision = LoadVisionEncoder(kGoldens / model);
  size_t pictures = 0;
  for (const VisionCase& c : ReadCases(model)) {
    if (c.grids.empty()) continue;
    SCOPED_TRACE(c.name);
    pictures += c.grids.size();
    const std::vector<Tensor> got = EncodeVision(vision, c), want = ExpectedFeatures(expected, c);
    ASSERT_EQ(want.size(), 3u);
    ASSERT_EQ(got.size(), want.size());
    const std::vector<Tensor> alone = EncodeVision(vision, c, 1);
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(got[i], want[i]);
      EXPECT_TRUE(SameBits(got[i].data(), alone[i].data(), got[i].size())) << "threads";
    }
  }
  EXPECT_EQ(pictures, 7u);
}

TEST_P(EncoderGoldens, PromptsAreEncodedAsByTheOfficialClass) {
  const std::string model = GetParam();
  const GoldenTensors expected = ExpectedOf(model);
  const TextEncoder text = LoadTextEncoder(kGoldens / model);
  const std::vector<VisionCase> cases = ReadCases(model);
  ASSERT_EQ(cases.size(), 5u);
  for (const VisionCase& c : cases) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> features = ExpectedFeatures(expected, c);
    if (!features.empty()) {
      const PromptImages images{features[0], c.grids, kGoldenImageToken};
      EXPECT_EQ(GetRopeIndex(c.input_ids, &images), c.position_ids);
    }
    const Tensor got = EncodeText(text, c, features);
    ExpectNear(got, expected.Get(c.name + "/hidden_states"));
    EXPECT_TRUE(SameBits(got.data(), EncodeText(text, c, features, {}, 1).data(), got.size())) << "threads";
  }
}

TEST_P(EncoderGoldens, PicturesDoNotSeeEachOther) {
  const VisionEncoder vision = LoadVisionEncoder(kGoldens / GetParam());
  const VisionCase all = FindCase(GetParam(), "three");
  const std::vector<Tensor> together = EncodeVision(vision, all);
  const Tensor pixels = GoldenPixels(all.grids, vision.config().patch().values(), all.pixel_seed);
  ThreadPool pool(2);
  const CancelFlag never;
  int64_t patch = 0, token = 0;
  for (const ImageGrid& grid : all.grids) {
    Tensor own({grid.patches(), pixels.dim(1)});
    std::copy_n(pixels.row(patch), own.size(), own.data());
    const std::vector<Tensor> alone = vision.Encode(own, {&grid, 1}, {pool, never});
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(SameBits(alone[i].data(), together[i].row(token), alone[i].size())) << token << " " << i;
    patch += grid.patches();
    token += grid.tokens();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderGoldens, ::testing::Values("nested", "flat"),
                         [](const auto& info) { return std::string(info.param); });

// Compares every checkpoint with the official one, then puts that in its place: so each error is the layer's
// own.
class Substitute : public CheckpointSink {
 public:
  explicit Substitute(const GoldenTensors& expected) : expected_(expected) {}

  // Rotations: these goldens hold half of each table, and Rope.HasTheOfficialAngles… compares it.
  bool Wants(std::string_view name) const override { return name.find("rotary_emb:") == name.npos; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const std::string golden = "two/" + SameOutput(name);
    ASSERT_TRUE(expected_.all().contains(golden)) << name;
    seen.insert(golden);
    const Tensor want = expected_.Get(golden);
    ASSERT_EQ(view.shape, want.shape()) << name;
    float* const got = std::get<float*>(view.data);
    EXPECT_LE(Nmse(got, want.data(), want.size()), kIsolated) << name;
    std::copy_n(want.data(), want.size(), got);
  }

  std::set<std::string> seen;

 private:
  // The module around it returns what its last part returns.
  static std::string SameOutput(const std::string& name) {
    for (const std::string_view part :
         {".attn.proj", ".o_proj", ".mlp.linear_fc2", ".linear_fc2", ".down_proj"}) {
      if (name.ends_with(part)) return name.substr(0, name.rfind('.'));
    }
    return name;
  }

  const GoldenTensors& expected_;
};

TEST(Encoders, EveryLayerIsTheOfficialOne) {
  const GoldenTensors expected = ExpectedOf("nested");
  const VisionCase c = FindCase("nested", "two");
  Substitute sink(expected);
  EncodeVision(LoadVisionEncoder(kGoldens / "nested"), c, 2, Tap(&sink));
  EncodeText(LoadTextEncoder(kGoldens / "nested"), c, ExpectedFeatures(expected, c), Tap(&sink));
  for (const auto& [name, tensor] : expected.all()) {
    if (name.starts_with("two/model.")) {
      EXPECT_TRUE(sink.seen.contains(name)) << name;
    }
  }
}

// A listener changes no bits.
TEST(Encoders, AreTheSameWhoeverListens) {
  class Listener : public CheckpointSink {
    bool Wants(std::string_view) const override { return true; }
    void OnCheckpoint(const std::string&, const CheckpointView&) override {}
  } listener;
  const VisionCase c = FindCase("nested", "three");
  const VisionEncoder vision = LoadVisionEncoder(kGoldens / "nested");
  const std::vector<Tensor> features = EncodeVision(vision, c),
                            heard = EncodeVision(vision, c, 2, Tap(&listener));
  for (size_t i = 0; i < features.size(); ++i)
    EXPECT_TRUE(SameBits(heard[i].data(), features[i].data(), features[i].size())) << i;
  const TextEncoder text = LoadTextEncoder(kGoldens / "nested");
  const Tensor want = EncodeText(text, c, features), got = EncodeText(text, c, features, Tap(&listener));
  EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
}

TEST(Rope, HasTheOfficialAnglesOfInterleavedAxes) {
  const GoldenTensors expected = ExpectedOf("nested");
  const VisionCase c = FindCase("nested", "two");
  const RopeTables rope = MakeRope(LoadTextEncoder(kGoldens / "nested").config(), c.position_ids);
  ExpectNear(rope.cos, expected.Get("two/cos"), kIsolated);
  ExpectNear(rope.sin, expected.Get("two/sin"), kIsolated);
}

// Which axis each frequency follows, read off positions that only one axis has.
std::string AxesOf(int64_t half, const std::array<int64_t, 3>& section) {
  TextEncoderConfig config;
  config.head_dim = 2 * half;
  config.mrope_section = section;
  std::string axes;
  for (int64_t i = 0; i < half; ++i) {
    for (size_t axis = 0; axis < 3; ++axis) {
      std::vector<int64_t> positions(3, 0);
      positions[axis] = 1;
      if (MakeRope(config, positions).sin[i] != 0.0f) axes += "THW"[axis];
    }
  }
  return axes;
}

TEST(Rope, GivesEachAxisItsShareOfFrequencies) {
  EXPECT_EQ(AxesOf(6, {2, 2, 2}), "THWTHW");
  EXPECT_EQ(AxesOf(8, {5, 2, 1}), "THWTHTTT");
  EXPECT_EQ(AxesOf(8, {4, 0, 4}), "TTWTTWTT");  // there is no third place for the width
  EXPECT_EQ(AxesOf(20, {8, 6, 6}), "THWTHWTHWTHWTHWTHWTT");
}

TEST(Rope, RefusesPositionsThatNoFloatHolds) {
  TextEncoderConfig config;
  config.head_dim = 4;
  constexpr int64_t kLast = 1 << 24;
  EXPECT_NO_THROW(MakeRope(config, std::vector<int64_t>{kLast, kLast, kLast}));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage,
                        [&] {
                          MakeRope(config, std::vector<int64_t>{kLast, kLast + 1, kLast});
                        }),
              HasSubstr("position 16777217"));
}

TEST(VisionEncoder, RefusesGridsThatDoNotFitThePixels) {
  const VisionEncoder vision = LoadVisionEncoder(kGoldens / "nested");
  ThreadPool pool(1);
  const CancelFlag never;
  const auto message = [&](std::vector<ImageGrid> grids, const Shape& pixels) {
    return MessageOf(ErrorKind::kUsage, [&] { vision.Encode(Tensor(pixels), grids, {pool, never}); });
  };
  EXPECT_THAT(message({{1, 4, 5}}, {20, 96}), HasSubstr("1 x 4 x 5 patches"));
  EXPECT_THAT(message({{1, int64_t{1} << 40, int64_t{1} << 40}}, {16, 96}), HasSubstr("patches"));
  EXPECT_THAT(message({{1, 4, 4}}, {20, 96}), HasSubstr("[20, 96] for 1 pictures, which need [16, 96]"));
  EXPECT_THAT(message({}, {0, 96}), HasSubstr("for 0 pictures"));
}

TEST(Encoders, StopWhenCancelledAndTellHowFarTheyAre) {
  const VisionCase c = FindCase("nested", "landscape");
  const VisionEncoder vision = LoadVisionEncoder(kGoldens / "nested");
  const TextEncoder text = LoadTextEncoder(kGoldens / "nested");
  ThreadPool pool(1);
  CancelFlag cancel;
  std::vector<double> progress;
  const Compute compute{pool, cancel, [&](double fraction) { progress.push_back(fraction); }};
  const Tensor pixels = GoldenPixels(c.grids, vision.config().patch().values(), c.pixel_seed);
  vision.Encode(pixels, c.grids, compute);
  EXPECT_EQ(progress, (std::vector<double>{0, 0.5}));
  progress.clear();
  text.Encode({1, 2}, compute);
  EXPECT_EQ(progress, (std::vector<double>{0, 1.0 / 3, 2.0 / 3}));
  cancel.Cancel();
  MessageOf(ErrorKind::kInterrupted, [&] { vision.Encode(pixels, c.grids, compute); });
  MessageOf(ErrorKind::kInterrupted, [&] { text.Encode({1, 2}, compute); });
}

TEST(TextEncoder, TakesPicturesThatFitThePromptOnly) {
  const TextEncoder text = LoadTextEncoder(kGoldens / "nested");
  const VisionCase two = FindCase("nested", "two");
  const auto message = [&](const VisionCase& c, const std::vector<Shape>& shapes) {
    std::vector<Tensor> features;
    for (const Shape& shape : shapes) {
      features.emplace_back(shape);
      std::fill_n(features.back().data(), features.back().size(), 0.0f);
    }
    return MessageOf(ErrorKind::kBadInput, [&] { EncodeText(text, c, features); });
  };
  EXPECT_THAT(message(two, {{8, 12}}), HasSubstr("7 image tokens, but its 2 pictures need 8"));
  EXPECT_THAT(message(two, {{7, 24}}), HasSubstr("embeddings [7, 24], but the text encoder is 12 wide"));
  EXPECT_THAT(message(two, {{7, 12}, {7, 12}, {6, 12}}),
              HasSubstr("embeddings [7, 12], but features [6, 12]"));
  VisionCase c = two;
  c.grids.pop_back();
  EXPECT_THAT(message(c, {{7, 12}}), HasSubstr("7 image tokens, but its 1 pictures need 4"));
  c = two;
  c.input_ids[0] = 64;
  EXPECT_THAT(message(c, {{7, 12}}), HasSubstr("gave token 64, but the text encoder knows only 64 tokens"));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21

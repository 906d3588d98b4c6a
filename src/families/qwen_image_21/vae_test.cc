// The VAE against the official class. The time_convs of the golden model are not zero, so that this also
// proves that a single picture never meets them.
#include "families/qwen_image_21/vae.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "families/qwen_image_21/vae_testing.h"
#include "kernels/testing.h"
#include "qwen_image/cancel.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::IsEmpty;

constexpr double kWhole = 1e-8, kIsolated = 1e-10;
constexpr VaeTiling kTiling = {.min_size = 48, .stride = 32};
constexpr int64_t kKeptRows = 3;  // of the tiled picture: every third

class VaeTest : public ::testing::Test {
 protected:
  static void ExpectClose(const Tensor& got, const Tensor& want, double limit) {
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_LE(testing::Nmse(ValuesOf(got), ValuesOf(want)), limit);
  }

  const GoldenTensors golden_;
  Vae vae_{VaeFiles().Open()};
  ThreadPool pool_{2};
  CancelFlag never_;
  Compute compute_{pool_, never_};
};

// Compares every checkpoint with the official one, then puts that in its place: so each error is the layer's
// own.
class Substitute : public CheckpointSink {
 public:
  explicit Substitute(const GoldenTensors& golden) : golden_(golden) {}

  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    if (!golden_.all().contains("modules/" + name)) {
      if (!LeftOut(name)) unknown.insert(name);
      return;
    }
    seen.insert("modules/" + name);
    const Tensor want = golden_.Get("modules/" + name);
    ASSERT_EQ(view.shape, want.shape()) << name;
    float* const values = std::get<float*>(view.data);
    const std::vector<float> got(values, values + want.size());
    EXPECT_LE(testing::Nmse(got, ValuesOf(want)), kIsolated) << name;
    std::copy_n(want.data(), want.size(), values);
  }

  std::set<std::string> seen, unknown;

 private:
  // As the script's LEFT_OUT.
  static bool LeftOut(const std::string& name) {
    return name.ends_with(".mid_block") || name.ends_with(".upsampler") || name.ends_with(".downsampler") ||
           (name.find("up_blocks.") != name.npos && name.find(".resnets.1.") != name.npos);
  }

  const GoldenTensors& golden_;
};

TEST_F(VaeTest, EveryModuleIsTheOfficialOne) {
  Substitute sink(golden_);
  vae_.Encode(GoldenPicture(1, 2), compute_, Tap(&sink));
  vae_.Decode(GoldenLatents(1, 2), compute_, Tap(&sink));
  EXPECT_THAT(sink.unknown, IsEmpty());
  std::set<std::string> modules;
  for (const auto& [name, stored] : golden_.all()) {
    if (name.starts_with("modules/")) modules.insert(name);
  }
  EXPECT_EQ(sink.seen, modules);
}

TEST_F(VaeTest, EncodesAndDecodesAsTheOfficialClass) {
  ExpectClose(vae_.Encode(GoldenPicture(1, 2), compute_), golden_.Get("modules/quant_conv"), kWhole);
  Tensor image = golden_.Get("modules/decoder.conv_out");
  image.Reshape({1, kPictureChannels, 16, 32});
  ASSERT_TRUE(std::any_of(image.data(), image.data() + image.size(), [](float v) { return v > 1; }));
  ClampPixels(image);
  ExpectClose(vae_.Decode(GoldenLatents(1, 2), compute_), image, kWhole);
}

TEST_F(VaeTest, TilesAreBlendedAndClampedAsDiffusersDoesIt) {
  ExpectClose(vae_.EncodeTiled(GoldenPicture(5, 3), kTiling, compute_), golden_.Get("tiled/moments"), kWhole);

  const Tensor image = vae_.DecodeTiled(GoldenLatents(5, 3), kTiling, compute_);
  const Tensor want = golden_.Get("tiled/image");  // [1, 4, 1, rows, 48]
  ASSERT_EQ(image.shape(), (Shape{1, kPictureChannels, 80, 48}));
  const int64_t rows = want.dim(3), width = want.dim(4);
  Tensor kept(want.shape());
  for (int64_t c = 0; c < kPictureChannels; ++c) {
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(image.row(c * 80 + row * kKeptRows), width, kept.row(c * rows + row));
  }
  ExpectClose(kept, want, kWhole);
  for (int64_t i = 0; i < image.size(); ++i) ASSERT_LE(std::abs(image[i]), 1.0f) << i;
}

TEST_F(VaeTest, WhatFitsIntoATileIsNotCut) {
  const Tensor picture = GoldenPicture(3, 3), latents = GoldenLatents(2, 3);
  EXPECT_EQ(ValuesOf(vae_.EncodeTiled(picture, kTiling, compute_)), ValuesOf(vae_.Encode(picture, compute_)));
  EXPECT_EQ(ValuesOf(vae_.DecodeTiled(latents, kTiling, compute_)), ValuesOf(vae_.Decode(latents, compute_)));
}

TEST_F(VaeTest, BandsThreadsAndListenersChangeNothing) {
  class Listener : public CheckpointSink {
   public:
    bool Wants(std::string_view) const override { return true; }
    void OnCheckpoint(const std::string&, const CheckpointView&) override {}
  } listener;
  const Tensor picture = GoldenPicture(7, 2), latents = GoldenLatents(7, 2);  // bands have 24 rows at least
  const std::vector<float> moments = ValuesOf(vae_.Encode(picture, compute_)),
                           image = ValuesOf(vae_.Decode(latents, compute_));
  EXPECT_EQ(ValuesOf(vae_.Encode(picture, compute_, Tap(&listener))), moments);
  EXPECT_EQ(ValuesOf(vae_.Decode(latents, compute_, Tap(&listener))), image);
  vae_.UseBackend(CpuBackend(/*band_floats=*/1));
  ThreadPool one(1);
  EXPECT_EQ(ValuesOf(vae_.Encode(picture, {one, never_})), moments);
  EXPECT_EQ(ValuesOf(vae_.Decode(latents, {one, never_})), image);
}

TEST_F(VaeTest, ImpossibleTilesAndSizesAreRefused) {
  const Tensor latents = GoldenLatents(5, 3);
  for (const VaeTiling tiling : {VaeTiling{48, 0}, VaeTiling{48, 64}, VaeTiling{40, 24}})
    EXPECT_THROW(vae_.DecodeTiled(latents, tiling, compute_), Error);
  EXPECT_THROW(vae_.Encode(Tensor({1, 4, 24, 16}), compute_), Error);
  EXPECT_THROW(vae_.EncodeTiled(Tensor({1, 4, 80, 24}), kTiling, compute_), Error);
}

// The same weights as other tools write them.
class VaeForms : public VaeTest {
 protected:
  void ExpectSamePictures(const VaeFiles& files) {
    const Vae vae(files.Open());
    const Tensor latents = GoldenLatents(2, 1), image = vae_.Decode(latents, compute_);
    EXPECT_EQ(ValuesOf(vae.Decode(latents, compute_)), ValuesOf(image));
    EXPECT_EQ(ValuesOf(vae.Encode(image, compute_)), ValuesOf(vae_.Encode(image, compute_)));
  }
};

TEST_F(VaeForms, WithOneTemporalSlice) {
  VaeFiles files;
  for (auto& [name, weight] : files.weights) {
    // The modules that a video model's convolutions are.
    const bool plane = name.find("attentions") != name.npos || name.find("resample") != name.npos;
    if (name.ends_with(".weight") && !plane) weight.shape.insert(weight.shape.begin() + 2, 1);
  }
  ExpectSamePictures(files);
}

// GGUF has four dimensions: [out, in, 1, 3, 3] becomes [out · in, 1, 3, 3].
TEST_F(VaeForms, WithFoldedDimensions) {
  VaeFiles files;
  for (auto& [name, weight] : files.weights) {
    Shape& shape = weight.shape;
    if (name.ends_with(".conv1.weight")) shape = {shape[0] * shape[1], 1, shape[2], shape[3]};
  }
  ExpectSamePictures(files);
}

TEST_F(VaeForms, WithShorterGammas) {
  VaeFiles files;
  for (auto& [name, weight] : files.weights) {
    if (name.ends_with(".gamma")) weight.shape = {weight.shape[0], 1, 1};
  }
  ExpectSamePictures(files);
}

TEST_F(VaeForms, WithoutTimeConv) {
  VaeFiles files;
  std::erase_if(files.weights,
                [](const auto& item) { return item.first.find(".time_conv.") != std::string::npos; });
  ASSERT_LT(files.weights.size(), VaeFiles().weights.size());
  ExpectSamePictures(files);
}

}  // namespace
}  // namespace qwen_image::qwen_image_21

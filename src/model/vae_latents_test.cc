#include "model/vae_latents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace qwen_image {
namespace {

const std::vector<double> kMean = {1.0, -1.0}, kStd = {2.0, 4.0};

Tensor Counted(const Shape& shape) {
  Tensor latents(shape);
  for (int64_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i);
  return latents;
}

std::vector<float> ValuesOf(const Tensor& latents) {
  return {latents.data(), latents.data() + latents.size()};
}

TEST(VaeLatents, DenormalizingMultipliesByStdAndAddsMean) {
  for (const ScaleBy by : {ScaleBy::kStd, ScaleBy::kInverse}) {
    Tensor latents = Counted({1, 2, 1, 1, 2});
    DenormalizeLatents(kMean, kStd, by, latents);
    EXPECT_EQ(ValuesOf(latents), (std::vector<float>{1, 3, 7, 11}));
    NormalizeLatents(kMean, kStd, by, latents);
    EXPECT_EQ(ValuesOf(latents), (std::vector<float>{0, 1, 2, 3}));
  }
}

// torch's bits: with 1 / std another float comes out.
TEST(VaeLatents, StdAndItsInverseRoundDifferently) {
  const std::vector<double> mean = {0.1}, std = {5.0};
  const auto scaled = [&](void (*scale)(std::span<const double>, std::span<const double>, ScaleBy, Tensor&),
                          ScaleBy by) {
    Tensor latents({1, 1, 1, 1, 1});
    latents[0] = 1.3f;
    scale(mean, std, by, latents);
    return latents[0];
  };
  const float inverse = 1.0f / 5.0f, centred = 1.3f - 0.1f;
  EXPECT_EQ(scaled(NormalizeLatents, ScaleBy::kStd), centred / 5.0f);
  EXPECT_EQ(scaled(NormalizeLatents, ScaleBy::kInverse), centred * inverse);
  EXPECT_EQ(scaled(DenormalizeLatents, ScaleBy::kStd), 1.3f * 5.0f + 0.1f);
  EXPECT_EQ(scaled(DenormalizeLatents, ScaleBy::kInverse), 1.3f / inverse + 0.1f);
  EXPECT_NE(scaled(NormalizeLatents, ScaleBy::kStd), scaled(NormalizeLatents, ScaleBy::kInverse));
  EXPECT_NE(scaled(DenormalizeLatents, ScaleBy::kStd), scaled(DenormalizeLatents, ScaleBy::kInverse));
}

TEST(VaeLatents, ThePosteriorsModeIsItsMeanAndASampleAddsItsSpread) {
  Tensor moments = Counted({1, 4, 1, 1, 3});
  for (int64_t i = 6; i < 12; ++i) moments[i] = i % 2 ? -100.0f : std::log(4.0f);  // log-variances
  EXPECT_EQ(ValuesOf(PosteriorMode(moments)), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  TorchGenerator generator(7), same(7);
  const Tensor sample = PosteriorSample(moments, generator);
  std::vector<float> noise(6);
  same.Normal(noise.data(), 6);
  for (int64_t i = 0; i < 6; ++i) {
    // Variances are cut to e⁻³⁰.
    const float spread = i % 2 ? std::exp(-15.0f) : 2.0f;
    EXPECT_NEAR(sample[i], static_cast<float>(i) + spread * noise[static_cast<size_t>(i)], 1e-6f) << i;
  }
}

}  // namespace
}  // namespace qwen_image

#include "parity/compare/image.h"

#include <gtest/gtest.h>

#include <cmath>

#include "files/colour.h"
#include "files/npy.h"
#include "files/testing.h"
#include "parity/compare/runs.h"

namespace qwen_image::compare {
namespace {

Image Gradient(int64_t width, int64_t height) {
  Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<uint8_t>((x * 7 + y * 13 + c * 50) % 256));
    }
  }
  return image;
}

TEST(Pictures, EqualOnesAreEqual) {
  for (const auto& [width, height] :
       {std::pair(20, 16), std::pair(3, 40), std::pair(1, 1), std::pair(2, 2)}) {
    const FloatImage picture = ToFloatImage(Gradient(width, height));
    const ImageComparison p = CompareImages(picture, picture, 255);
    EXPECT_NEAR(p.ssim, 1, 1e-9);
    EXPECT_EQ(p.psnr, INFINITY);
    EXPECT_EQ(p.max_levels, 0);
    EXPECT_TRUE(IsSameImage(p));
  }
}

TEST(Pictures, AConstantOffset) {
  const FloatImage ref{16, 16, std::vector<float>(3 * 256, 100.0f)};
  const FloatImage run{16, 16, std::vector<float>(3 * 256, 110.0f)};
  const ImageComparison p = CompareImages(ref, run, 255);
  EXPECT_NEAR(p.psnr, 20 * std::log10(25.5), 1e-9);
  EXPECT_DOUBLE_EQ(p.rmse, 10);
  EXPECT_DOUBLE_EQ(p.max_levels, 10);
  // Without structure only the term of the means is left.
  const double c1 = std::pow(0.01 * 255, 2);
  EXPECT_NEAR(p.ssim, (2 * 100.0 * 110 + c1) / (100.0 * 100 + 110.0 * 110 + c1), 1e-9);
  EXPECT_EQ(p.ref_mean[1], 100);
  EXPECT_EQ(p.run_std[2], 0);
  EXPECT_FALSE(IsSameImage(p));
}

// A weighted mean over one window of 11 × 11, computed here the long way.
TEST(Pictures, SsimOfOneWindow) {
  const FloatImage ref = ToFloatImage(Gradient(11, 11));
  FloatImage run = ref;
  for (size_t i = 0; i < run.values.size(); ++i) run.values[i] = static_cast<float>((i * 37) % 200);
  double weights = 0, a = 0, b = 0, aa = 0, bb = 0, ab = 0;
  for (int y = 0; y < 11; ++y) {
    for (int x = 0; x < 11; ++x) {
      const double w = std::exp(-((x - 5) * (x - 5) + (y - 5) * (y - 5)) / 4.5);
      const auto luma = [&](const FloatImage& p) {
        const size_t i = static_cast<size_t>(y) * 11 + static_cast<size_t>(x);
        return 0.299 * p.values[i] + 0.587 * p.values[i + 121] + 0.114 * p.values[i + 242];
      };
      const double u = luma(ref), v = luma(run);
      weights += w;
      a += w * u;
      b += w * v;
      aa += w * u * u;
      bb += w * v * v;
      ab += w * u * v;
    }
  }
  a /= weights;
  b /= weights;
  const double va = aa / weights - a * a, vb = bb / weights - b * b, cov = ab / weights - a * b;
  const double c1 = 6.5025, c2 = 58.5225;
  EXPECT_NEAR(CompareImages(ref, run, 255).ssim,
              (2 * a * b + c1) * (2 * cov + c2) / ((a * a + b * b + c1) * (va + vb + c2)), 1e-9);
}

TEST(Pictures, OtherSizesAndNan) {
  const FloatImage small = ToFloatImage(Gradient(8, 8)), large = ToFloatImage(Gradient(8, 9));
  EXPECT_EQ(CompareImages(small, large, 255).problem, "8 x 9 pixels, expected 8 x 8");
  FloatImage broken = small;
  broken.values[5] = NAN;
  EXPECT_FALSE(IsSameImage(CompareImages(small, broken, 255)));
}

TEST(Pictures, AlphaCountsAsAnyChannel) {
  Image image = WithChannels(Gradient(12, 12), 4);
  const FloatImage ref = ToFloatImage(image);
  EXPECT_EQ(ref.channels, 4);
  ASSERT_EQ(ref.values.size(), 4u * 144);
  EXPECT_EQ(ref.values[1 * 144 + 5], image.pixels[5 * 4 + 1]);
  image.pixels[4 * 30 + 3] = 251;  // alpha of one pixel
  const ImageComparison p = CompareImages(ref, ToFloatImage(image), 255);
  EXPECT_EQ(p.max_levels, 4);
  EXPECT_DOUBLE_EQ(p.rmse, std::sqrt(16.0 / (4 * 144)));
  EXPECT_LT(p.ssim, 1);
  EXPECT_EQ(p.ref_mean.size(), 4u);
  EXPECT_EQ(p.ref_mean[3], 255);
  EXPECT_EQ(p.note, "");
  EXPECT_FALSE(IsSameImage(p));
}

// Hidden colours are no part of what people see, but they are a part of what a program computed.
TEST(Pictures, WhatIsClearLooksWhite) {
  FloatImage ref{16, 16, std::vector<float>(4 * 256, 0.0f), 4}, run = ref;  // clear black
  for (size_t i = 0; i < 3 * 256; ++i) run.values[i] = 200;                 // clear grey
  const ImageComparison p = CompareImages(ref, run, 255);
  EXPECT_NEAR(p.ssim, 1, 1e-9);
  EXPECT_EQ(p.max_levels, 200);
  for (float& value : ref.values) value = -1;
  for (size_t i = 0; i < run.values.size(); ++i) run.values[i] = i < 3 * 256 ? 0.5f : -1;
  EXPECT_NEAR(CompareImages(ref, run, 2).ssim, 1, 1e-9) << "as the VAE returns it";
}

TEST(Pictures, OneWithoutAlphaCountsAsOpaqueAndItIsSaid) {
  const Image rgb = Gradient(20, 16);
  Image rgba = WithChannels(rgb, 4);
  const auto compare = [](const Image& ref, const Image& run) {
    return CompareImages(ToFloatImage(ref), ToFloatImage(run), 255);
  };
  EXPECT_EQ(compare(rgb, rgba).note, "the reference has no alpha, and counts as opaque");
  EXPECT_TRUE(IsSameImage(compare(rgb, rgba)));
  EXPECT_EQ(compare(rgba, rgb).note, "the run has no alpha, and counts as opaque");
  rgba.pixels[3] = 0;
  EXPECT_EQ(compare(rgba, rgb).max_levels, 255);
  EXPECT_FALSE(IsSameImage(compare(rgba, rgb)));
  FloatImage tensor{2, 2, std::vector<float>(12, 0.0f)}, opaque{2, 2, std::vector<float>(16, 0.0f), 4};
  for (size_t i = 12; i < 16; ++i) opaque.values[i] = 1;
  EXPECT_EQ(CompareImages(tensor, opaque, 2).max_levels, 0);
}

TEST(Pictures, OfRunsAreComparedAsTensorAndAsPng) {
  const TempFolder ref, run;
  std::vector<float> image(3 * 16 * 16, 0.0f);
  WriteNpy(ref.path() / "image.npy", image.data(), {1, 3, 16, 16});
  image[7] = 2;  // beyond the range: seen before the clamp
  WriteNpy(run.path() / "image.npy", image.data(), {1, 3, 16, 16});
  for (const TempFolder* folder : {&ref, &run}) WritePng(folder->path() / "image.png", Gradient(16, 16), {});
  const Comparison c =
      CompareSets(record::TensorSet::Open(ref.path()), record::TensorSet::Open(run.path()), {});
  ASSERT_EQ(c.pictures.size(), 2u);
  EXPECT_DOUBLE_EQ(c.pictures[0].max_levels, 255);
  EXPECT_EQ(c.pictures[1].what, "PNG");
  EXPECT_EQ(c.pictures[1].max_levels, 0);
  EXPECT_FALSE(c.passed());
}

TEST(Pictures, OfRunsWithAlpha) {
  const TempFolder ref, run;
  std::vector<float> image(4 * 16 * 16, 0.0f);
  WriteNpy(ref.path() / "image.npy", image.data(), {1, 4, 16, 16});
  image[3 * 256] = 1;
  WriteNpy(run.path() / "image.npy", image.data(), {1, 4, 16, 16});
  Image png = WithChannels(Gradient(16, 16), 4);
  std::fill_n(png.pixels.begin(), 3, uint8_t{255});  // white, so that on white nothing would be seen
  WritePng(ref.path() / "image.png", png, {});
  png.pixels[3] = 253;
  WritePng(run.path() / "image.png", png, {});
  const Comparison c =
      CompareSets(record::TensorSet::Open(ref.path()), record::TensorSet::Open(run.path()), {});
  ASSERT_EQ(c.pictures.size(), 2u);
  EXPECT_DOUBLE_EQ(c.pictures[0].max_levels, 127.5);
  EXPECT_EQ(c.pictures[1].max_levels, 2);
}

TEST(Pictures, PngFilesAlone) {
  const TempFolder folder;
  Image image = Gradient(64, 64);
  WritePng(folder.path() / "a.png", image, {});
  image.pixels[0] ^= 1;
  WritePng(folder.path() / "b.png", image, {});
  image.pixels[1] ^= 2;
  WritePng(folder.path() / "c.png", image, {});
  EXPECT_TRUE(ComparePngFiles(folder.path() / "a.png", folder.path() / "b.png").passed());
  EXPECT_FALSE(ComparePngFiles(folder.path() / "a.png", folder.path() / "c.png").passed());
}

}  // namespace
}  // namespace qwen_image::compare

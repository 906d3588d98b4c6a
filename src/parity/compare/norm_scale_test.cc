#include "parity/compare/norm_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace qwen_image::compare {
namespace {

const Shape kShape = {1, 40, 64};

// x / sqrt(mean square + epsilon), computed in fp32; tokens are of several sizes.
std::vector<float> Normalized(double epsilon, const std::function<double(size_t)>& error = {}) {
  std::vector<float> x(40 * 64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin(1.3 * static_cast<double>(i * i % 1009)) *
                                  (1 + static_cast<double>(i / 64 % 3)) +
                              (error ? error(i) : 0));
  for (size_t row = 0; row < 40; ++row) {
    float squares = 0;
    for (size_t i = 0; i < 64; ++i) squares += x[row * 64 + i] * x[row * 64 + i];
    const float scale = 1 / std::sqrt(squares / 64 + static_cast<float>(epsilon));
    for (size_t i = 0; i < 64; ++i) x[row * 64 + i] *= scale;
  }
  return x;
}

std::optional<double> Scale(const std::vector<float>& ref, const std::vector<float>& run) {
  return SystematicScale(SourceOf(ref.data(), kShape), SourceOf(run.data(), kShape));
}

TEST(SystematicScale, FindsAnotherEpsilon) {
  const auto scale = Scale(Normalized(1e-6), Normalized(1e-5));
  ASSERT_TRUE(scale);
  EXPECT_LT(*scale, -1e-6);
  EXPECT_GT(*scale, -2e-5);
}

TEST(SystematicScale, IsNotRoundingNorAnErrorFromBefore) {
  const std::vector<float> ref = Normalized(1e-6);
  EXPECT_FALSE(Scale(ref, ref));
  std::vector<float> rounded = ref;
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = std::nextafter(rounded[i], i % 3 ? 9.0f : -9.0f);
  EXPECT_FALSE(Scale(ref, rounded));
  EXPECT_FALSE(
      Scale(ref, Normalized(1e-6, [](size_t i) { return 1e-5 * std::cos(static_cast<double>(i)); })));
}

}  // namespace
}  // namespace qwen_image::compare

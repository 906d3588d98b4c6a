#include "families/qwen_image/guidance.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qwen_image {
namespace {

TEST(TrueCfg, KeepsTheNormOfThePositivePrediction) {
  Tensor positive({1, 2, 3}), negative({1, 2, 3});
  for (int64_t i = 0; i < 6; ++i) {
    positive[i] = static_cast<float>(i) - 1.5f;
    negative[i] = 0.5f * static_cast<float>(i % 4);
  }
  const Tensor before = positive.Clone();
  ApplyTrueCfg(negative, 4.0f, positive);
  for (int64_t t = 0; t < 2; ++t) {
    double norm_before = 0, norm_after = 0, combined_norm = 0;
    for (int64_t c = 0; c < 3; ++c) {
      norm_before += std::pow(before.row(t)[c], 2);
      norm_after += std::pow(positive.row(t)[c], 2);
      combined_norm += std::pow(negative.row(t)[c] + 4 * (before.row(t)[c] - negative.row(t)[c]), 2);
    }
    EXPECT_NEAR(norm_after, norm_before, 1e-5);
    for (int64_t c = 0; c < 3; ++c) {
      const double combined = negative.row(t)[c] + 4 * (before.row(t)[c] - negative.row(t)[c]);
      EXPECT_NEAR(positive.row(t)[c], combined * std::sqrt(norm_before / combined_norm), 1e-6);
    }
  }
}

TEST(TrueCfg, ZeroPredictionsStayZero) {
  Tensor positive({1, 1, 2}), negative({1, 1, 2});
  for (int64_t i = 0; i < 2; ++i) positive[i] = negative[i] = 0;
  ApplyTrueCfg(negative, 4.0f, positive);
  EXPECT_EQ(positive[0], 0.0f);
  EXPECT_EQ(positive[1], 0.0f);
}

}  // namespace
}  // namespace qwen_image

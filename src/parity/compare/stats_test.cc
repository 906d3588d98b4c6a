#include "parity/compare/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "parity/compare/tensor.h"

namespace qwen_image::compare {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TensorComparison CompareValues(const std::vector<float>& ref, const std::vector<float>& run) {
  const Shape shape = {static_cast<int64_t>(ref.size())};
  return CompareTensor("x", SourceOf(ref.data(), shape), SourceOf(run.data(), shape), [](const TensorStats&) {
    return Criterion{.kind = Criterion::Kind::kAllClose, .atol = 0.1, .rtol = 0.1};
  });
}

TEST(Stats, OfFiniteValuesInPieces) {
  StatsAccumulator accumulator;
  const double first[] = {1e8 + 1, NAN, 1e8 + 3}, second[] = {INFINITY, -INFINITY}, third[] = {1e8 + 5};
  accumulator.Add(first, 3);
  accumulator.Add(second, 2);
  accumulator.Add(third, 1);
  const TensorStats s = accumulator.Finish();
  EXPECT_EQ(s.nan, 1);
  EXPECT_EQ(s.inf, 2);
  EXPECT_EQ(s.min, 1e8 + 1);
  EXPECT_EQ(s.max, 1e8 + 5);
  EXPECT_DOUBLE_EQ(s.mean, 1e8 + 3);
  EXPECT_DOUBLE_EQ(s.std, std::sqrt(8.0 / 3));  // no digits lost to the large mean
  EXPECT_DOUBLE_EQ(s.sum, 3e8 + 9);
  EXPECT_EQ(s.first.size(), 6u);
}

TEST(Stats, OfNothing) {
  const TensorStats s = StatsAccumulator().Finish();
  EXPECT_EQ(s.min, 0);
  EXPECT_EQ(s.std, 0);
}

TEST(Errors, Figures) {
  const TensorComparison c = CompareValues({1, 2, -4, 0}, {1, 2.5, -4, 0.25});
  const ErrorStats& e = *c.error;
  EXPECT_DOUBLE_EQ(e.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(e.mean_abs, 0.75 / 4);
  EXPECT_DOUBLE_EQ(e.nmse, 0.3125 / 21);
  EXPECT_DOUBLE_EQ(e.max_rel, 0.25 / 4e-6);
  EXPECT_DOUBLE_EQ(e.cosine, 22 / std::sqrt(21 * (1 + 6.25 + 16 + 0.0625)));
  EXPECT_DOUBLE_EQ(e.psnr, 10 * std::log10(36 * 4 / 0.3125));
  EXPECT_DOUBLE_EQ(e.allclose, 2.5);
  EXPECT_EQ(e.outside, 2);
  EXPECT_EQ(e.worst, 1);
  EXPECT_EQ(e.worst_ref, 2);
  EXPECT_EQ(e.worst_run, 2.5);
  EXPECT_THAT(c.run.first, ElementsAre(1, 2.5, -4, 0.25));
}

TEST(Errors, OfEqualTensors) {
  for (const std::vector<float>& values : {std::vector<float>{1, -2}, {0, 0}, {}, {INFINITY, 1}}) {
    const ErrorStats e = *CompareValues(values, values).error;
    EXPECT_EQ(e.max_abs, 0);
    EXPECT_EQ(e.nmse, 0);
    EXPECT_NEAR(e.cosine, 1, 1e-15);
    EXPECT_EQ(e.psnr, INFINITY);
    EXPECT_EQ(e.max_ulp, 0);
  }
}

TEST(Errors, ANanOnOneSideMakesEveryFigureNan) {
  const ErrorStats e = *CompareValues({1, 2, 3}, {1, NAN, 9}).error;
  for (const double figure : {e.max_abs, e.mean_abs, e.max_rel, e.nmse, e.cosine, e.psnr, e.p50, *e.max_ulp})
    EXPECT_TRUE(std::isnan(figure));
  EXPECT_EQ(e.worst, 1);
  EXPECT_EQ(e.worst_ref, 2);
}

TEST(Errors, UlpCountsFloatsBetween) {
  EXPECT_EQ(CompareValues({1}, {std::nextafter(1.0f, 2.0f)}).error->max_ulp, 1);
  EXPECT_EQ(CompareValues({0}, {-std::numeric_limits<float>::denorm_min()}).error->max_ulp, 1);
  EXPECT_EQ(CompareValues({1}, {2}).error->max_ulp, 1 << 23);
  EXPECT_EQ(CompareValues({-1}, {1}).error->max_ulp, 2.0 * 0x3f800000);
}

TEST(Errors, QuantilesAreWithinThreePercentAboveTheTrueOnes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> ref(100000, 0.0f), run(ref.size());
  std::vector<double> errors;
  for (float& value : run) errors.push_back(std::abs(value = std::exp(3 * normal(random)) * 1e-5f));
  std::sort(errors.begin(), errors.end());
  const ErrorStats e = *CompareValues(ref, run).error;
  const auto expect = [&](double found, double share) {
    const double truth =
        errors[static_cast<size_t>(std::ceil(share * static_cast<double>(errors.size()))) - 1];
    EXPECT_GE(found, truth);
    EXPECT_LE(found, truth * 1.0313);
  };
  expect(e.p50, 0.5);
  expect(e.p90, 0.9);
  expect(e.p99, 0.99);
  expect(e.p999, 0.999);
}

TEST(Histogram, TakesAnySize) {
  LogHistogram histogram;
  for (const double value : {0.0, 1e-300, 1e300, 5e-324, 1.0}) histogram.Add(value);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_THAT(histogram.Quantile(0.8), DoubleNear(1, 0.032));
  EXPECT_GT(histogram.Quantile(1), 1e40);
  EXPECT_EQ(LogHistogram().Quantile(0.5), 0);
}

TEST(Errors, ATensorLargerThanAPiece) {
  std::vector<float> ref(40000, 1.0f), run = ref;
  run[39999] = 3;
  const TensorComparison c = CompareValues(ref, run);
  EXPECT_EQ(c.error->worst, 39999);
  EXPECT_EQ(c.run.sum, 40002);
  EXPECT_FALSE(c.passed);
}

}  // namespace
}  // namespace qwen_image::compare

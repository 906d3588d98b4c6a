#include "inspect/value_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "files/testing.h"

namespace qwen_image::inspect {
namespace {

std::vector<double> Normal(size_t count, double mean, double std) {
  std::mt19937 engine(3);
  std::normal_distribution<double> normal(mean, std);
  std::vector<double> values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

ValueStatistics Of(const std::vector<double>& values) {
  ValueStatistics s;
  s.Add(values.data(), static_cast<int64_t>(values.size()));
  return s;
}

TEST(ValueStatistics, AgreesWithTheDefinitions) {
  for (const size_t count : {1, 2, 7, 8, 9, 1001}) {
    const std::vector<double> values = Normal(count, 0.3, 2);
    const auto n = static_cast<double>(count);
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    for (const double v : values) squares += (v - mean) * (v - mean);
    const ValueStatistics s = Of(values);
    EXPECT_EQ(s.count, static_cast<int64_t>(count));
    EXPECT_NEAR(s.mean, mean, 1e-12);
    EXPECT_NEAR(s.std(), std::sqrt(squares / n), 1e-12);
    EXPECT_EQ(s.min, *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(s.max, *std::max_element(values.begin(), values.end()));
  }
}

TEST(ValueStatistics, PartsMergeToTheWhole) {
  const std::vector<double> values = Normal(1000, -5, 0.1);
  ValueStatistics merged = Of({values.begin(), values.begin() + 333});
  merged.Merge(Of({values.begin() + 333, values.end()}));
  merged.Merge(ValueStatistics());
  const ValueStatistics whole = Of(values);
  EXPECT_NEAR(merged.mean, whole.mean, 1e-13);
  EXPECT_NEAR(merged.std(), whole.std(), 1e-13);
  EXPECT_EQ(merged.count, whole.count);
  EXPECT_EQ(merged.min, whole.min);
}

TEST(ValueStatistics, KeepsASmallSpreadAroundALargeMean) {
  std::vector<double> values = Normal(10000, 0, 1e-3);
  const double std = Of(values).std();
  for (double& v : values) v += 1e6;
  EXPECT_NEAR(Of(values).std(), std, 1e-6 * std);
}

TEST(ValueStatistics, CountsWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const ValueStatistics s = Of({1, nan, 3, inf, -inf, 0, 0, 0, 0, nan});
  EXPECT_EQ(s.nan, 2);
  EXPECT_EQ(s.inf, 2);
  EXPECT_EQ(s.zeros, 4);
  EXPECT_EQ(s.min, 0);
  EXPECT_EQ(s.max, 3);
  EXPECT_NEAR(s.mean, 4.0 / 6, 1e-12);
  EXPECT_FALSE(s.constant());
  EXPECT_EQ(Of({nan, nan}).finite(), 0);
  EXPECT_FALSE(Of({nan, nan}).constant());
}

TEST(ValueStatistics, AConstantHasNoSpread) {
  const ValueStatistics s = Of(std::vector<double>(777, 0.1));
  EXPECT_TRUE(s.constant());
  EXPECT_EQ(s.std(), 0);
  EXPECT_EQ(s.mean, 0.1);
  EXPECT_FALSE(ValueStatistics().constant());
}

}  // namespace
}  // namespace qwen_image::inspect

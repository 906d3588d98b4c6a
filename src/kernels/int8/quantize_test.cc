#include "kernels/int8/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/int8/activations.h"
#include "kernels/int8/testing.h"

namespace qwen_image {
namespace {

using testing::ForEachKernel;
using testing::ForEachTarget;
using testing::FourThreads;
using testing::Random;

constexpr QuantizationError kLoose = {.of_row = 1e9, .of_typical = 1e9};

// A row by itself, and its error as the header defines it.
struct SlowRow {
  std::vector<int8_t> a;
  std::vector<float> scales, sums;
  QuantizationError error;
};

SlowRow QuantizeSlowly(const float* x, int64_t depth, int group) {
  SlowRow row;
  double power = 0, error = 0;
  std::vector<double> powers;
  for (int64_t first = 0; first < depth; first += group) {
    float largest = 0;
    for (int64_t k = first; k < first + group; ++k) largest = std::max(largest, std::abs(x[k]));
    const float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int sum = 0;
    double group_power = 0;
    for (int64_t k = first; k < first + group; ++k) {
      const float rounded = std::nearbyint(x[k] * inverse);
      row.a.push_back(static_cast<int8_t>(rounded));
      sum += static_cast<int>(rounded);
      group_power += static_cast<double>(x[k]) * x[k];
      error += std::pow(x[k] - static_cast<double>(scale) * rounded, 2);
    }
    row.scales.push_back(scale);
    row.sums.push_back(scale * static_cast<float>(sum));
    powers.push_back(group_power);
    power += group_power;
  }
  std::sort(powers.begin(), powers.end());
  row.error = {error / power, error / (powers[powers.size() / 2] * static_cast<double>(powers.size()))};
  return row;
}

// Groups whose values are of very different size.
std::vector<float> UnevenRow(int64_t depth, int group, uint32_t seed) {
  std::vector<float> x = Random(depth, seed);
  const std::vector<float> sizes = Random(depth / group, seed + 1, 4.0f);
  for (int64_t k = 0; k < depth; ++k)
    x[static_cast<size_t>(k)] *= std::exp(sizes[static_cast<size_t>(k / group)]);
  return x;
}

// More groups than a vector has lanes, fewer, and some that are left over.
template <class Body>
void ForEachSize(const Body& body) {
  for (const int group : {16, 32, 64}) {
    for (const int64_t groups : {1, 2, 3, 4, 7, 8, 15, 16, 17, 48}) {
      SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(group));
      body(groups * group, group);
    }
  }
}

TEST(QuantizeRow, HasTheBitsOfItsSlowTwin) {
  ForEachTarget([] {
    ForEachSize([](int64_t depth, int group) {
      constexpr int kTileRows = 5, kRow = 3;
      const std::vector<float> x = UnevenRow(depth, group, 1);
      const SlowRow want = QuantizeSlowly(x.data(), depth, group);
      std::vector<int8_t> a(static_cast<size_t>(depth));
      const auto groups = static_cast<size_t>(depth / group);
      std::vector<float> scales(groups * kTileRows, -7), sums(groups * kTileRows, -7);
      QuantizeRow(x.data(), depth, group, kLoose, {a.data(), scales.data(), sums.data(), kTileRows, kRow});
      EXPECT_EQ(a, want.a);
      for (size_t i = 0; i < groups * kTileRows; ++i) {
        const bool of_row = i % kTileRows == kRow;
        EXPECT_EQ(scales[i], of_row ? want.scales[i / kTileRows] : -7) << i;
        EXPECT_EQ(sums[i], of_row ? want.sums[i / kTileRows] : -7) << i;
      }
    });
  });
}

// Just below the error that the slow twin measures, and just above.
TEST(QuantizeRow, KeepsToTheLimits) {
  ForEachTarget([] {
    ForEachSize([](int64_t depth, int group) {
      const std::vector<float> x = UnevenRow(depth, group, 5);
      const QuantizationError error = QuantizeSlowly(x.data(), depth, group).error;
      std::vector<int8_t> a(static_cast<size_t>(depth));
      std::vector<float> scales(static_cast<size_t>(depth / group)), sums(scales);
      const auto good = [&](double of_row, double of_typical) {
        const QuantizationError limits = {of_row * error.of_row, of_typical * error.of_typical};
        return QuantizeRow(x.data(), depth, group, limits, {a.data(), scales.data(), sums.data(), 1, 0});
      };
      EXPECT_TRUE(good(1.001, 1.001));
      EXPECT_FALSE(good(0.999, 1.001));
      EXPECT_FALSE(good(1.001, 0.999));
    });
  });
}

TEST(QuantizeRow, ZerosAndTinyNumbersAreGood) {
  ForEachTarget([] {
    for (const float value : {0.0f, 1e-38f, 1e-42f}) {
      const std::vector<float> x(96, value);
      std::vector<int8_t> a(96, 1);
      std::vector<float> scales(3, 1), sums(3, 1);
      EXPECT_TRUE(QuantizeRow(x.data(), 96, 32, {1e-4, 1e-3}, {a.data(), scales.data(), sums.data(), 1, 0}));
      EXPECT_EQ(a, std::vector<int8_t>(96, 0)) << value;
      EXPECT_EQ(scales, std::vector<float>(3, 0)) << value;
    }
  });
}

TEST(QuantizeRow, WhatIsNotFiniteMakesTheRowNan) {
  ForEachTarget([] {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t at : {0u, 37u, 1151u}) {
        std::vector<float> x = Random(1152, 3);
        x[at] = bad;
        std::vector<int8_t> a(x.size());
        std::vector<float> scales(x.size() / 64), sums(scales);
        EXPECT_TRUE(
            QuantizeRow(x.data(), 1152, 64, {1e-4, 1e-3}, {a.data(), scales.data(), sums.data(), 1, 0}));
        for (const float scale : scales) EXPECT_TRUE(std::isnan(scale));
        for (const float sum : sums) EXPECT_TRUE(std::isnan(sum));
      }
    }
  });
}

TEST(InterleaveRows, PutsFoursOfRowsSideBySide) {
  ForEachTarget([] {
    for (const int tile_rows : {1, 4, 6, 12}) {
      for (int first = 0; first < tile_rows; ++first) {
        for (int rows = 1; first + rows <= tile_rows; ++rows) {
          for (const int64_t depth : {16, 48, 80}) {
            SCOPED_TRACE(::testing::Message()
                         << rows << " from " << first << " on of " << tile_rows << ", depth " << depth);
            std::vector<int8_t> bytes(static_cast<size_t>(rows * depth));
            for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int8_t>(i * 37 + i / 256);
            std::vector<int8_t> want(static_cast<size_t>(tile_rows * depth), 99), got(want);
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t k = 0; k < depth; ++k)
                want[static_cast<size_t>((k / 4 * tile_rows + first + r) * 4 + k % 4)] =
                    bytes[static_cast<size_t>(r * depth + k)];
            InterleaveRows(bytes.data(), rows, depth, {got.data(), nullptr, nullptr, tile_rows, first});
            ASSERT_EQ(got, want);
          }
        }
      }
    }
  });
}

// Rows of whole tiles, and those of the last one, on threads that begin inside a tile.
TEST(Int8Activations, EveryRowStandsInItsTile) {
  ForEachKernel([] {
    constexpr int64_t kDepth = 1216;
    for (const int64_t rows : {1, 5, 11, 12, 13, 31, 131}) {
      const std::vector<float> x = Random(rows * kDepth, 7);
      Int8Activations activations;
      activations.Quantize(
          rows, kDepth, 64, Int8Fineness::kEverywhere,
          [&](int64_t row, float*) { return x.data() + row * kDepth; }, FourThreads());
      EXPECT_EQ(activations.fine_rows(), rows);
      for (int64_t row = 0; row < rows; ++row) {
        const SlowRow want = QuantizeSlowly(x.data() + row * kDepth, kDepth, 64);
        const int64_t tile_rows = activations.tile_rows(), r = row % tile_rows;
        const Int8Rows tile = activations.Coarse(row / tile_rows, 0);
        for (int64_t k = 0; k < kDepth; ++k)
          ASSERT_EQ(tile.a[(k / 4 * tile_rows + r) * 4 + k % 4], want.a[static_cast<size_t>(k)]);
        for (int64_t g = 0; g < kDepth / 64; ++g)
          ASSERT_EQ(tile.scales[g * tile_rows + r], want.scales[static_cast<size_t>(g)]);
      }
    }
  });
}

}  // namespace
}  // namespace qwen_image

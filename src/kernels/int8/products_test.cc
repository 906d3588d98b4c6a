// Products in 8 bits: every kernel that this machine can run, every format of weights.
#include <limits>

#include "core/ggml_blocks.h"
#include "kernels/int8/matmul.h"
#include "kernels/int8/testing.h"
#include "kernels/int8/weights.h"
#include "kernels/interface.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

std::vector<float> Decoded(const WeightMatrix& w) {
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; ++r) DecodeRow(w, r, 0, w.cols, values.data() + r * w.cols);
  return values;
}

Int8Activations Quantized(const std::vector<float>& x, int64_t rows, int64_t depth, int group,
                          Int8Fineness fineness = Int8Fineness::kWhereNeeded) {
  Int8Activations activations;
  activations.Quantize(
      rows, depth, group, fineness, [&](int64_t row, float*) { return x.data() + row * depth; },
      FourThreads());
  return activations;
}

// What the integers stand for.
std::vector<double> Dequantized(const Int8Activations& x) {
  std::vector<double> values(static_cast<size_t>(x.rows() * x.depth()));
  const auto add = [&](const Int8Rows& rows, int from, int64_t row) {
    for (int64_t k = 0; k < x.depth(); ++k) {
      const int64_t four = (k / 4 * x.tile_rows() + from) * 4 + k % 4;
      values[static_cast<size_t>(row * x.depth() + k)] +=
          static_cast<double>(rows.scales[k / x.group() * x.tile_rows() + from]) * rows.a[four];
    }
  };
  for (int64_t row = 0; row < x.rows(); ++row) {
    add(x.Coarse(row / x.tile_rows(), 0), static_cast<int>(row % x.tile_rows()), row);
    const int64_t fine = x.FineRow(row);
    if (fine >= 0) add(x.Fine(fine / x.tile_rows(), 0), static_cast<int>(fine % x.tile_rows()), row);
  }
  return values;
}

std::vector<float> Multiply(const Int8Activations& x, const WeightMatrix& w, const float* bias = nullptr,
                            ThreadPool& pool = FourThreads()) {
  std::vector<float> y(static_cast<size_t>(x.rows() * w.rows), -777.0f);
  const Int8Product product = {.x = &x, .w = &w, .bias = bias, .y = Rows(y, x.rows())};
  Int8MatMul({&product, 1}, pool);
  return y;
}

// The product of the quantized activations, in double: what is left is the rounding of one sum a group.
void ExpectRight(int64_t rows, const Weights& weights, Int8Fineness fineness, int parts_of_group = 1) {
  const WeightMatrix& w = weights.matrix;
  const int group = Int8GroupOf(w) / parts_of_group;
  SCOPED_TRACE(::testing::Message() << rows << " x " << w.cols << " x " << w.rows << ", groups of " << group);
  ASSERT_GT(group, 0);
  const std::vector<float> x = Random(rows * w.cols, 1), bias = Random(w.rows, 2), values = Decoded(w);
  const Int8Activations quantized = Quantized(x, rows, w.cols, group, fineness);
  const std::vector<double> seen = Dequantized(quantized);
  const std::vector<float> got = Multiply(quantized, w, bias.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < w.rows; ++c) {
      double sum = bias[static_cast<size_t>(c)], magnitude = std::abs(sum);
      for (int64_t k = 0; k < w.cols; ++k) {
        const double product =
            seen[static_cast<size_t>(r * w.cols + k)] * values[static_cast<size_t>(c * w.cols + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      // scale · Σq·a and bias · Σa of a group may be far larger than their sum: q up to 255 stands for values
      // around zero. Hence the factor.
      const double tolerance = 32 * kUnit * (std::sqrt(static_cast<double>(w.cols / group)) + 4) * magnitude;
      ASSERT_NEAR(got[static_cast<size_t>(r * w.rows + c)], sum, tolerance)
          << "row " << r << ", column " << c;
    }
  }
}

TEST(Int8MatMul, MlxWeightsOfAllBitsAndGroups) {
  ForEachKernel([] {
    for (int bits : {2, 3, 4, 5, 6, 8}) {
      for (int group : {32, 64, 128}) {
        SCOPED_TRACE(bits);
        ExpectRight(7, MlxWeights(33, 3 * group, bits, group), Int8Fineness::kWhereNeeded);
      }
    }
  });
}

TEST(Int8MatMul, GgmlBlocksOfAllKinds) {
  ForEachKernel([] {
    for (const BlockFormat& format : GgmlBlockFormats()) {
      SCOPED_TRACE(format.name);
      ExpectRight(7, BlockWeights(19, 512, format), Int8Fineness::kWhereNeeded);
    }
  });
}

TEST(Int8MatMul, BytesWithScales) {
  ForEachKernel([] {
    const BlockFormat& i8 = *FindBlockFormat("I8");
    ExpectRight(3, BlockWeights(5, 192, i8, {0.01f}), Int8Fineness::kWhereNeeded);
    ExpectRight(3, BlockWeights(5, 192, i8, {0.01f, 0.02f, 0.5f, 1.0f, 3.0f}), Int8Fineness::kWhereNeeded);
  });
}

TEST(Int8MatMul, ActivationsInSmallerGroupsThanTheWeights) {
  ForEachKernel([] {
    for (int bits : {4, 8}) {
      for (int group : {64, 128}) {
        for (int parts : {2, 4}) {
          ExpectRight(7, MlxWeights(33, 3 * group, bits, group), Int8Fineness::kWhereNeeded, parts);
          ExpectRight(5, MlxWeights(17, 49 * group, bits, group), Int8Fineness::kEverywhere, parts);
        }
      }
    }
    ExpectRight(3, BlockWeights(5, 192, *FindBlockFormat("I8"), {0.01f}), Int8Fineness::kWhereNeeded, 2);
    ExpectRight(7, BlockWeights(19, 512, *FindBlockFormat("Q4_0")), Int8Fineness::kWhereNeeded, 2);
  });
}

TEST(Int8MatMul, AllNumbersOfRowsAndColumns) {
  ForEachKernel([] {
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 11, 12, 13, 25}) {
      for (int64_t cols : {1, 15, 16, 17, 64, 65})
        ExpectRight(rows, MlxWeights(cols, 64, 4, 64), Int8Fineness::kWhereNeeded);
      ExpectRight(rows, MlxWeights(17, 64, 8, 64), Int8Fineness::kEverywhere);
    }
  });
}

TEST(Int8MatMul, DepthsOfSeveralBlocksAndRowsOfSeveralTasks) {
  ForEachKernel([] {
    ExpectRight(3, MlxWeights(17, 3136, 4, 64), Int8Fineness::kWhereNeeded);
    ExpectRight(3, MlxWeights(17, 6272, 8, 64), Int8Fineness::kEverywhere);
    ExpectRight(2, BlockWeights(17, 3584, *FindBlockFormat("Q6_K")), Int8Fineness::kWhereNeeded);
    ExpectRight(400, MlxWeights(3, 64, 4, 64), Int8Fineness::kWhereNeeded);
  });
}

TEST(Int8MatMul, PlainNumbersAreNotIntegers) {
  const float values[64] = {};
  EXPECT_EQ(Int8GroupOf({values, DType::kF32, 1, 64}), 0);
  EXPECT_EQ(Int8GroupOf(BlockWeights(1, 64, *FindBlockFormat("F8_E4M3")).matrix), 0);
  EXPECT_EQ(Int8GroupOf(BlockWeights(1, 65, *FindBlockFormat("I8")).matrix), 0);
  EXPECT_EQ(Int8GroupOf(MlxWeights(1, 128, 4, 128).matrix), 64);
}

// NMSE of the product with 8-bit activations against exact arithmetic, row by row.
std::vector<double> RowErrors(const std::vector<float>& x, int64_t rows, const Weights& w) {
  const int64_t depth = w.matrix.cols, cols = w.matrix.rows;
  const std::vector<float> got = Multiply(Quantized(x, rows, depth, Int8GroupOf(w.matrix)), w.matrix);
  std::vector<float> want(got.size());
  MatMul(Rows(x, rows), w.matrix, nullptr, Rows(want, rows), FourThreads());
  std::vector<double> errors;
  for (int64_t r = 0; r < rows; ++r) {
    const auto from = [&](const std::vector<float>& y) {
      return std::vector<float>(y.begin() + r * cols, y.begin() + (r + 1) * cols);
    };
    errors.push_back(Nmse(from(got), from(want)));
  }
  return errors;
}

TEST(Int8MatMul, NormalActivationsAreGoodInEightBits) {
  const std::vector<float> x = Random(24 * 1024, 1);
  const Weights w = MlxWeights(256, 1024, 4, 64);
  EXPECT_EQ(Quantized(x, 24, 1024, 64).fine_rows(), 0);
  for (double error : RowErrors(x, 24, w)) EXPECT_LE(error, 1e-4);
}

// The ranges that were seen in the real model: an MLP's hidden values reach ±25,000, a residual stream
// ±4.5e7, while most values of the same token are far smaller.
constexpr float kOutliers[] = {25'000.0f, 2e6f, 4.5e7f};

TEST(Int8MatMul, OutliersInEveryGroupGetMoreBits) {
  ForEachKernel([] {
    for (float outlier : kOutliers) {
      SCOPED_TRACE(outlier);
      std::vector<float> x = Random(24 * 1024, 1);
      for (int64_t row : {3, 4, 20}) {
        for (int64_t k = row * 1024; k < (row + 1) * 1024; ++k) {
          x[static_cast<size_t>(k)] = k % 64 == 7 ? outlier : x[static_cast<size_t>(k)] * outlier / 50;
        }
      }
      EXPECT_EQ(Quantized(x, 24, 1024, 64).fine_rows(), 3);
      for (double error : RowErrors(x, 24, MlxWeights(256, 1024, 4, 64))) EXPECT_LE(error, 1e-4);
    }
  });
}

// One spike is so large that nothing else counts in the error of the row. What it does to its neighbours
// shows when it is taken away again.
TEST(Int8MatMul, ASpikeDoesNotSwallowItsNeighbours) {
  const Weights w = MlxWeights(256, 1024, 4, 64);
  for (float outlier : kOutliers) {
    SCOPED_TRACE(outlier);
    std::vector<float> x = Random(2 * 1024, 1);
    std::copy_n(x.begin(), 1024, x.begin() + 1024);
    x[1024 + 5] += outlier;
    const Int8Activations quantized = Quantized(x, 2, 1024, 64);
    EXPECT_EQ(quantized.fine_rows(), 1);
    std::vector<double> seen = Dequantized(quantized);
    double error = 0, power = 0;
    for (size_t k = 0; k < 1024; ++k) {
      if (k == 5) continue;
      error += std::pow(seen[1024 + k] - x[k], 2);
      power += std::pow(x[k], 2);
    }
    EXPECT_LE(error / power, 1e-4);
  }
}

// Of a row with outliers only the groups that they stand in are multiplied twice.
TEST(Int8MatMul, GroupsWithoutOutliersStayCoarse) {
  std::vector<float> x = Random(2 * 1024, 1);
  x[64 * 3 + 5] = x[64 * 9] = 2e6f;
  const Int8Activations quantized = Quantized(x, 2, 1024, 64);
  ASSERT_EQ(quantized.FineRow(0), 0);
  for (int64_t group = 0; group < 16; ++group)
    EXPECT_EQ(quantized.HasFine(0, group), group == 3 || group == 9) << group;
}

TEST(Int8MatMul, ARowHasTheSameBitsAloneAndOnAnyNumberOfThreads) {
  ForEachKernel([] {
    std::vector<float> x = Random(401 * 128, 1);
    x[128 * 7 + 3] = 1e6f;  // a row with a fine plane among others
    const Weights w = MlxWeights(70, 128, 4, 64);
    const std::vector<float> all = Multiply(Quantized(x, 401, 128, 64), w.matrix);
    ExpectSame(Multiply(Quantized(x, 401, 128, 64), w.matrix, nullptr, OneThread()), all);
    for (int64_t row : {0, 6, 7, 8, 400}) {
      const std::vector<float> one(x.begin() + row * 128, x.begin() + (row + 1) * 128);
      ExpectSame(Multiply(Quantized(one, 1, 128, 64), w.matrix),
                 std::vector<float>(all.begin() + row * 70, all.begin() + (row + 1) * 70));
    }
  });
}

TEST(Int8MatMul, FusedStepsHaveTheSameBits) {
  const int64_t rows = 13, cols = 37, depth = 128;
  const std::vector<float> x = Random(rows * depth, 1), bias = Random(cols, 2), gate = Random(cols, 6);
  const Weights w = MlxWeights(cols, depth, 4, 64);
  ForEachTarget([&] {
    const Int8Activations quantized = Quantized(x, rows, depth, 64);
    std::vector<float> plain = Multiply(quantized, w.matrix, bias.data());
    std::vector<float> fused_gelu(plain.size()), fused_gate = Random(rows * cols, 8), want_gate = fused_gate;
    const Int8Product products[] = {
        {.x = &quantized, .w = &w.matrix, .bias = bias.data(), .gelu = true, .y = Rows(fused_gelu, rows)},
        {.x = &quantized,
         .w = &w.matrix,
         .bias = bias.data(),
         .gate = gate.data(),
         .y = Rows(fused_gate, rows)}};
    Int8MatMul(products, FourThreads());
    AddGated(Rows(plain, rows), gate.data(), Rows(want_gate, rows), OneThread());
    ExpectSame(fused_gate, want_gate);
    GeluTanh(Rows(plain), Rows(plain), OneThread());
    ExpectSame(fused_gelu, plain);
  });
}

TEST(Int8MatMul, AddsToWhatIsThere) {
  const int64_t rows = 13, cols = 37, depth = 128;
  const std::vector<float> x = Random(rows * depth, 1), bias = Random(cols, 2);
  const Weights w = MlxWeights(cols, depth, 4, 64);
  ForEachTarget([&] {
    const Int8Activations quantized = Quantized(x, rows, depth, 64);
    const std::vector<float> plain = Multiply(quantized, w.matrix, bias.data());
    std::vector<float> fused = Random(rows * cols, 8), want = fused;
    const Int8Product product = {
        .x = &quantized, .w = &w.matrix, .bias = bias.data(), .add = true, .y = Rows(fused, rows)};
    Int8MatMul({&product, 1}, FourThreads());
    Add(Rows(want, rows), Rows(plain, rows), Rows(want, rows), OneThread());
    ExpectSame(fused, want);
  });
}

TEST(Int8MatMul, LateRowsHaveAGateOfTheirOwn) {
  const int64_t rows = 13, cols = 37, depth = 128, late = 9;
  const std::vector<float> x = Random(rows * depth, 1), gate = Random(cols, 6), late_gate = Random(cols, 7);
  const Weights w = MlxWeights(cols, depth, 4, 64);
  ForEachTarget([&] {
    const Int8Activations quantized = Quantized(x, rows, depth, 64);
    const std::vector<float> plain = Multiply(quantized, w.matrix);
    std::vector<float> fused = Random(rows * cols, 8), want = fused;
    const Int8Product product = {.x = &quantized,
                                 .w = &w.matrix,
                                 .gate = gate.data(),
                                 .late_row = late,
                                 .late_gate = late_gate.data(),
                                 .y = Rows(fused, rows)};
    Int8MatMul({&product, 1}, FourThreads());
    AddGated(Rows(plain, rows).Rows(0, late), gate.data(), Rows(want, rows), OneThread());
    AddGated(Rows(plain, rows).Rows(late, rows - late), late_gate.data(),
             Rows(want, rows).Rows(late, rows - late), OneThread());
    ExpectSame(fused, want);
  });
}

TEST(Int8MatMul, RowsOfZerosTinyValuesAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(5 * 64, 0.0f);
  std::fill_n(x.begin() + 64, 64, 1e-42f);  // denormal
  x[2 * 64 + 9] = std::numeric_limits<float>::quiet_NaN();
  x[3 * 64 + 9] = kInfinity;
  std::fill_n(x.begin() + 4 * 64, 64, 3e38f);
  ForEachKernel([&] {
    const Weights w = MlxWeights(3, 64, 4, 64);
    const std::vector<float> y = Multiply(Quantized(x, 5, 64, 64), w.matrix);
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(y[c], 0.0f);
      EXPECT_LE(std::abs(y[3 + c]), 1e-38f);
      EXPECT_TRUE(std::isnan(y[6 + c]));
      EXPECT_TRUE(std::isnan(y[9 + c]));
    }
  });
}

}  // namespace
}  // namespace qwen_image

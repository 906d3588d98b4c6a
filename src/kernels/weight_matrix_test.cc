#include "kernels/weight_matrix.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/block_coding.h"
#include "kernels/interface.h"
#include "kernels/mlx_groups.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// Random bytes of which any two are a finite half-precision number: a scale may begin anywhere.
std::vector<std::byte> RandomBytes(size_t count) {
  std::mt19937 engine(11);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  for (std::byte& byte : bytes) {
    if ((byte & std::byte{0x7c}) == std::byte{0x7c}) byte = std::byte{1};
  }
  return bytes;
}

// The product with encoded weights is the product with the same weights decoded, bit by bit.
void ExpectSameProduct(int64_t rows, const WeightMatrix& w) {
  std::vector<float> decoded(static_cast<size_t>(w.rows * w.cols));
  for (int64_t n = 0; n < w.rows; ++n) DecodeRow(w, n, 0, w.cols, decoded.data() + n * w.cols);
  for (const float value : decoded) ASSERT_TRUE(std::isfinite(value));
  const WeightMatrix plain{decoded.data(), DType::kF32, w.rows, w.cols};
  const std::vector<float> x = Random(rows * w.cols, 1);
  std::vector<float> want(static_cast<size_t>(rows * w.rows)), got(want.size(), -777.0f);
  ForEachTarget([&] {
    MatMul(Rows(x, rows), plain, nullptr, Rows(want, rows), FourThreads());
    MatMul(Rows(x, rows), w, nullptr, Rows(got, rows), FourThreads());
    ExpectSame(got, want);
  });
}

TEST(EncodedWeights, BlocksMultiplyLikeTheirValues) {
  for (const char* name :
       {"F8_E4M3", "Q8_0", "Q4_0", "Q5_1", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}) {
    SCOPED_TRACE(name);
    const BlockFormat* format = FindBlockFormat(name);
    ASSERT_NE(format, nullptr);
    for (const int64_t blocks : {1, 3}) {
      const int64_t rows = 37, cols = blocks * format->values;
      const auto bytes = RandomBytes(static_cast<size_t>(rows * blocks * format->bytes) + 1);
      for (const int64_t tokens : {1, 7, 200}) {
        // One byte off any alignment.
        ExpectSameProduct(
            tokens,
            {.data = bytes.data() + 1, .rows = rows, .cols = cols, .coding = MakeBlockCoding(*format)});
      }
    }
  }
}

// Groups of random values, of every kind there is; most begin at odd addresses.
void ForAllGroups(int64_t count, const std::function<void(const MlxGroups&)>& test) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      SCOPED_TRACE(::testing::Message() << bits << " bits, groups of " << group_size);
      const auto packed = RandomBytes(static_cast<size_t>(count * group_size * bits / 8) + 1);
      const auto scales = RandomBytes(static_cast<size_t>(count) * 2);
      const auto biases = RandomBytes(static_cast<size_t>(count) * 2 + 1);
      test({.bits = bits,
            .group_size = group_size,
            .packed = packed.data() + 1,
            .scales = scales.data(),
            .biases = biases.data() + 1,
            .scales_dtype = DType::kF16,
            .biases_dtype = DType::kF16});
    }
  }
}

TEST(EncodedWeights, GroupsMultiplyLikeTheirValues) {
  const int64_t rows = 19, groups = 5;
  ForAllGroups(rows * groups, [&](const MlxGroups& mlx) {
    ExpectSameProduct(
        7, {.data = mlx.packed, .rows = rows, .cols = groups * mlx.group_size, .coding = MakeMlxCoding(mlx)});
  });
}

TEST(EncodedWeights, ManyGroupsBecomeWhatEachOfThemIs) {
  const int64_t first = 2, count = 41;  // several times what is decoded together, and a rest
  ForAllGroups(first + count, [&](const MlxGroups& mlx) {
    const auto size = static_cast<size_t>(mlx.group_size);
    std::vector<float> together(static_cast<size_t>(count) * size, -777.0f), alone(together.size());
    mlx.Dequantize(first, count, together.data());
    for (int64_t group = 0; group < count; ++group)
      mlx.Dequantize(first + group, 1, alone.data() + group * mlx.group_size);
    ExpectSame(together, alone);
  });
}

TEST(EncodedWeights, ScalesAreForAllOrForEachRow) {
  const std::byte values[] = {std::byte{1}, std::byte{0xfe}, std::byte{3}, std::byte{4}};  // 1, -2, 3, 4
  WeightMatrix w{.data = values, .rows = 2, .cols = 2};
  std::vector<float> row(2);
  const auto use = [&](std::vector<float> scales) {
    w.coding = MakeBlockCoding(*FindBlockFormat("I8"), std::move(scales));
    DecodeRow(w, 1, 0, 2, row.data());
  };
  use({0.5f});
  EXPECT_EQ(row, (std::vector<float>{1.5f, 2.0f}));
  use({0.5f, 10.0f});
  EXPECT_EQ(row, (std::vector<float>{30.0f, 40.0f}));
  DecodeRow(w, 0, 1, 1, row.data());
  EXPECT_EQ(row[0], -1.0f);
}

}  // namespace
}  // namespace qwen_image

// The layers on MLX against the CPU's, with weights as they lie in files: at odd addresses.
#include "mlx/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/ggml_blocks.h"
#include "kernels/int8/testing.h"
#include "kernels/reference.h"
#include "kernels/testing.h"
#include "ops/interface.h"

namespace qwen_image::on_mlx {
namespace {

using testing::BlockWeights;
using testing::FourThreads;
using testing::MlxWeights;
using testing::Random;
using testing::RandomBytes;
using testing::Weights;

constexpr double kLayer = 1e-10;        // NMSE of one layer in float32
constexpr double kBf16 = 0x1p-8;        // the largest relative error of one rounding to bfloat16
constexpr int64_t kRows = 3, kOut = 5;  // of x and of y: neither fills a register

std::vector<float> ValuesOf(const array& x) {
  const Tensor host = ToHost(x);
  return {host.data(), host.data() + host.size()};
}

std::vector<float> OnCpu(const qwen_image::Linear& linear, const std::vector<float>& x) {
  const int64_t rows = static_cast<int64_t>(x.size()) / linear.weight.cols;
  const CancelFlag never;
  const Compute compute{FourThreads(), never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  Tensor input({rows, linear.weight.cols});
  std::copy(x.begin(), x.end(), input.data());
  Array y = ops->New({rows, linear.weight.rows});
  ops->Multiply(linear, ops->FromHost(input), y);
  return {y.view.data, y.view.data + y.view.size()};
}

void ExpectAlike(const qwen_image::Linear& linear) {
  const int64_t cols = linear.weight.cols;
  const std::vector<float> x = Random(kRows * cols, 11);
  const array y = Linear(linear)(ToDevice(x.data(), {1, kRows, cols}));
  EXPECT_EQ(y.dtype(), mx::float32);
  ASSERT_THAT(ShapeOf(y), ::testing::ElementsAre(1, kRows, linear.weight.rows));
  EXPECT_LE(testing::Nmse(ValuesOf(y), OnCpu(linear, x)), kLayer);
}

// Floats in one of the plain types, at an odd address.
std::vector<std::byte> Stored(const std::vector<float>& values, DType dtype) {
  const mx::Dtype type = dtype == DType::kF16    ? mx::float16
                         : dtype == DType::kBF16 ? mx::bfloat16
                                                 : mx::float32;
  array stored = mx::contiguous(mx::astype(ToDevice(values), type));
  stored.eval();
  std::vector<std::byte> bytes(stored.nbytes() + 1);
  std::memcpy(bytes.data() + 1, stored.data<char>(), stored.nbytes());
  return bytes;
}

struct PlainWeights {
  PlainWeights(int64_t rows, int64_t cols, DType dtype, uint32_t seed = 7)
      : bytes(Stored(Random(rows * cols, seed), dtype)), matrix{bytes.data() + 1, dtype, rows, cols} {}
  std::vector<std::byte> bytes;
  WeightMatrix matrix;
};

constexpr DType kPlainTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(MlxLinear, PlainNumbersOfEveryTypeWithAndWithoutBias) {
  for (const DType dtype : kPlainTypes) {
    SCOPED_TRACE(NameOf(dtype));
    const PlainWeights w(kOut, 37, dtype);
    ExpectAlike({w.matrix, {}});
    ExpectAlike({w.matrix, Random(kOut, 8)});
  }
}

TEST(MlxLinear, GroupsOfEveryWidthSizeAndTypeOfScales) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType dtype : kPlainTypes) {
        SCOPED_TRACE(fmt::format("{} bits, groups of {}, scales {}", bits, group, NameOf(dtype)));
        constexpr int64_t kCols = 384;
        Weights w = MlxWeights(kOut, kCols, bits, group);
        const int64_t groups = kOut * kCols / group;
        const std::vector<std::byte> scales = Stored(Random(groups, 4, 0.01f), dtype);
        const std::vector<std::byte> biases = Stored(Random(groups, 5, 0.05f), dtype);
        MlxGroups other = *w.matrix.coding->mlx();
        other.scales = scales.data() + 1;
        other.biases = biases.data() + 1;
        other.scales_dtype = other.biases_dtype = dtype;
        w.matrix.coding = MakeMlxCoding(other);
        ExpectAlike({w.matrix, Random(kOut, 8)});
        EXPECT_EQ(Linear(qwen_image::Linear{w.matrix, {}}).Form(), fmt::format("{}/{}", bits, group))
            << "not as they are";
      }
    }
  }
}

// Scales and biases of a file need not be of one type.
TEST(MlxLinear, GroupsWhoseScalesAndBiasesDifferInType) {
  Weights w = MlxWeights(kOut, 128, 4, 64);
  const std::vector<std::byte> scales = Stored(Random(kOut * 2, 4, 0.01f), DType::kBF16);
  MlxGroups other = *w.matrix.coding->mlx();
  other.scales = scales.data() + 1;
  other.scales_dtype = DType::kBF16;
  w.matrix.coding = MakeMlxCoding(other);
  ExpectAlike({w.matrix, {}});
}

TEST(MlxLinear, BlocksOfEveryFormat) {
  int regrouped = 0, decoded = 0;
  for (const BlockFormat& format : GgmlBlockFormats()) {
    SCOPED_TRACE(format.name);
    const int64_t cols = std::lcm(format.values, int64_t{32}) * 2;
    for (const std::vector<float>& scales : {std::vector<float>{}, {0.25f}, Random(kOut, 9)}) {
      const Weights w = BlockWeights(kOut, cols, format, scales);
      ExpectAlike({w.matrix, Random(kOut, 8)});
      const bool packed = !Linear(qwen_image::Linear{w.matrix, {}}).Form().starts_with("0/");
      EXPECT_EQ(packed, format.integers.group >= 32) << "groups of " << format.integers.group;
      (packed ? regrouped : decoded)++;
    }
  }
  EXPECT_GT(regrouped, 3 * 5);
  EXPECT_GE(decoded, 3 * 3);
}

TEST(MlxLinear, BytesTimesOneScaleOrOneForEachRow) {
  for (const char* name : {"F8_E4M3", "F8_E5M2", "I8"}) {
    // 96 is no multiple of the groups that 8-bit integers are thought in.
    for (const int64_t cols : {64, 96, 40}) {
      SCOPED_TRACE(fmt::format("{}, {} columns", name, cols));
      for (const std::vector<float>& scales : {std::vector<float>{}, {0.02f}, Random(kOut, 9)})
        ExpectAlike({BlockWeights(kOut, cols, *FindBlockFormat(name), scales).matrix, Random(kOut, 8)});
    }
  }
}

TEST(MlxLinear, UpdatesOfAnyWeights) {
  constexpr int64_t kCols = 64;
  const PlainWeights down(4, kCols, DType::kBF16, 21), up(kOut, 4, DType::kF32, 22);
  const PlainWeights second_down(2, kCols, DType::kF16, 23), second_up(kOut, 2, DType::kF16, 24);
  const PlainWeights plain(kOut, kCols, DType::kBF16);
  const Weights packed = MlxWeights(kOut, kCols, 4, 32);
  const Weights bytes = BlockWeights(kOut, kCols, *FindBlockFormat("F8_E4M3"), {0.5f});
  for (const WeightMatrix& matrix : {plain.matrix, packed.matrix, bytes.matrix}) {
    qwen_image::Linear linear{matrix, Random(kOut, 8)};
    linear.updates = {{down.matrix, up.matrix, 0.75f}, {second_down.matrix, second_up.matrix, -2.0f}};
    ExpectAlike(linear);
  }
}

// Half as wide activations: x is rounded before, here so that nothing is lost. Then decoded weights, the
// product, the bias and the sum are rounded once each; of a product from groups MLX's CPU rounds every term
// and every partial sum.
TEST(MlxLinear, HalfAsWideActivationsStayWithinTheirRoundings) {
  constexpr int64_t kCols = 64;
  const std::vector<float> bias = Random(kOut, 8);
  const array rounded =
      mx::astype(ToDevice(Random(kRows * kCols, 11).data(), {1, kRows, kCols}), mx::bfloat16);
  const std::vector<float> x = ValuesOf(rounded);
  const PlainWeights plain(kOut, kCols, DType::kBF16), wide(kOut, kCols, DType::kF32);
  const Weights bytes = BlockWeights(kOut, kCols, *FindBlockFormat("F8_E4M3"), {0.3f});
  const Weights packed = MlxWeights(kOut, kCols, 4, 32);
  for (const WeightMatrix& matrix : {plain.matrix, wide.matrix, bytes.matrix, packed.matrix}) {
    qwen_image::Linear fast{matrix, bias};
    fast.precision = Precision::kFast;
    const array y = Linear(fast)(rounded);
    EXPECT_EQ(y.dtype(), mx::bfloat16);
    const double roundings = matrix.coding && matrix.coding->mlx() ? kCols + 4 : 4;
    std::vector<float> weights(static_cast<size_t>(kOut * kCols));
    for (int64_t row = 0; row < kOut; ++row) DecodeRow(matrix, row, 0, kCols, weights.data() + row * kCols);
    testing::ExpectNear(ValuesOf(y), OnCpu({matrix, bias}, x), [&](int64_t i) {
      double magnitude = std::abs(bias[static_cast<size_t>(i % kOut)]);
      for (int64_t c = 0; c < kCols; ++c)
        magnitude += std::abs(static_cast<double>(x[static_cast<size_t>(i / kOut * kCols + c)]) *
                              weights[static_cast<size_t>(i % kOut * kCols + c)]);
      return roundings * kBf16 * magnitude;
    });
  }
}

TEST(MlxLinear, IsItselfAgainWithTheArraysThatItShows) {
  const PlainWeights down(2, 64, DType::kF32, 21), up(kOut, 2, DType::kF32, 22);
  qwen_image::Linear one{MlxWeights(kOut, 64, 4, 32).matrix, {}};
  const Weights first = MlxWeights(kOut, 64, 4, 32),
                second = BlockWeights(kOut, 64, *FindBlockFormat("Q4_0"));
  one = {first.matrix, Random(kOut, 8), {{down.matrix, up.matrix, 0.5f}}};
  qwen_image::Linear two{second.matrix, Random(kOut, 9), {{down.matrix, up.matrix, 0.5f}}};
  Linear a(one), b(two);
  EXPECT_EQ(a.Form(), b.Form());
  std::vector<array> arrays;
  b.Visit([&](array& x) { arrays.push_back(x); });
  ASSERT_EQ(arrays.size(), 6u);
  size_t next = 0;
  a.Visit([&](array& x) { x = arrays[next++]; });
  const std::vector<float> x = Random(kRows * 64, 11);
  testing::ExpectSame(ValuesOf(a(ToDevice(x.data(), {kRows, 64}))),
                      ValuesOf(b(ToDevice(x.data(), {kRows, 64}))));

  two.updates[0].factor = 0.25f;  // is no array: a function compiled for one factor does not fit another
  EXPECT_NE(Linear(two).Form(), a.Form());
  two.updates.clear();
  EXPECT_NE(Linear(two).Form(), a.Form());
}

TEST(MlxActivations, AreTheKernelsFunctions) {
  std::vector<float> x = Random(1000, 1, 3.0f);
  x.insert(x.end(), {0.0f, -0.0f, 30.0f, -30.0f, 1000.0f, -1000.0f, 25000.0f, 1e-6f});
  const auto count = static_cast<int64_t>(x.size());
  std::vector<float> want(x.size());
  const auto expect = [&](array (*on_device)(const array&), void (*on_host)(ConstView, View)) {
    on_host({x.data(), 1, count}, {want.data(), 1, count});
    // Both sums of 1 + tanh or erf cancel below −1: of |x| a few units are left.
    testing::ExpectNear(ValuesOf(on_device(ToDevice(x))), want,
                        [&](int64_t i) { return 8 * testing::kUnit * std::abs(x[static_cast<size_t>(i)]); });
    const array half = on_device(mx::astype(ToDevice(x), mx::bfloat16));
    EXPECT_EQ(half.dtype(), mx::bfloat16);
  };
  expect(Silu, reference::Silu);
  expect(Gelu, reference::Gelu);
  expect(GeluTanh, reference::GeluTanh);
}

class MlxRope : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 5, kHeads = 3, kHeadDim = 8;
  void Expect(array (*on_device)(const array&, const array&, const array&),
              void (*on_host)(View, const RopeAngles&)) {
    std::vector<float> want = x_;
    on_host({want.data(), kTokens, kHeads * kHeadDim}, {cos_.data(), sin_.data(), kHeadDim});
    const Shape shape = {1, kTokens, kHeads, kHeadDim}, table = {kTokens, kHeadDim / 2};
    const array x = ToDevice(x_.data(), shape), cos = ToDevice(cos_.data(), table),
                sin = ToDevice(sin_.data(), table);
    const array got = on_device(x, cos, sin);
    EXPECT_EQ(ShapeOf(got), shape);
    // Two products and their sum.
    testing::ExpectNear(ValuesOf(got), want, [](int64_t) { return 8 * testing::kUnit * 4; });
    const array half = on_device(mx::astype(x, mx::bfloat16), cos, sin);
    EXPECT_EQ(half.dtype(), mx::bfloat16);
    testing::ExpectNear(ValuesOf(half), want, [](int64_t) { return 3 * kBf16 * 4; });
  }
  static std::vector<float> Angles(float (*function)(float)) {
    std::vector<float> values = Random(kTokens * kHeadDim / 2, 3);
    for (float& v : values) v = function(v);
    return values;
  }

  const std::vector<float> x_ = Random(kTokens * kHeads * kHeadDim, 2);
  const std::vector<float> cos_ = Angles(std::cos), sin_ = Angles(std::sin);
};

TEST_F(MlxRope, Interleaved) { Expect(RopeInterleaved, reference::RopeInterleaved); }
TEST_F(MlxRope, Halves) { Expect(RopeHalves, reference::RopeHalves); }

TEST(MlxAttention, AllHeadsSharedHeadsAndCausal) {
  for (const int64_t kv_heads : {6, 2, 1}) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      for (const int64_t head_dim : {8, 64}) {
        SCOPED_TRACE(fmt::format("{} key heads of {}, causal {}", kv_heads, head_dim, mask == Mask::kCausal));
        const int64_t queries = 7, keys = mask == Mask::kCausal ? 7 : 11, heads = 6;
        const std::vector<float> q = Random(queries * heads * head_dim, 1),
                                 k = Random(keys * kv_heads * head_dim, 2),
                                 v = Random(keys * kv_heads * head_dim, 3);
        std::vector<float> want(q.size());
        reference::Attention(
            {q.data(), queries, heads * head_dim}, {k.data(), keys, kv_heads * head_dim},
            {v.data(), keys, kv_heads * head_dim},
            {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .causal = mask == Mask::kCausal},
            {want.data(), queries, heads * head_dim});
        const Shape kv_shape = {1, keys, kv_heads, head_dim};
        const array got = Attention(ToDevice(q.data(), {1, queries, heads, head_dim}),
                                    ToDevice(k.data(), kv_shape), ToDevice(v.data(), kv_shape), mask);
        EXPECT_THAT(ShapeOf(got), ::testing::ElementsAre(1, queries, heads * head_dim));
        EXPECT_LE(testing::Nmse(ValuesOf(got), want), kLayer);
      }
    }
  }
}

// Blocks of the published model add to a stream of ±4.5e7: in bfloat16, whose neighbours lie 262,144 apart
// there, what they add would be lost.
TEST(MlxNorms, AStreamOfHugeNumbersKeepsWhatIsAddedToIt) {
  std::vector<float> stream = Random(64, 1);
  for (size_t i = 0; i < stream.size(); ++i) stream[i] = i % 2 == 0 ? 4.5e7f : -4.5e7f;
  const std::vector<float> added = Random(64, 2, 1000.0f);
  std::vector<float> sum(64), want(64);
  for (size_t i = 0; i < 64; ++i) sum[i] = stream[i] + added[i];
  reference::LayerNorm({sum.data(), 1, 64}, 1e-6f, {want.data(), 1, 64});
  const array on_device = ToDevice(stream.data(), {1, 64}) + ToDevice(added.data(), {1, 64});
  EXPECT_LE(testing::Nmse(ValuesOf(mx::fast::layer_norm(on_device, {}, {}, 1e-6f)), want), kLayer);
}

}  // namespace
}  // namespace qwen_image::on_mlx

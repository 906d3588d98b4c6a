#include "kernels/int8/weights.h"

#include "core/ggml_blocks.h"
#include "core/tensor.h"
#include "kernels/int8/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// Bits [at, at + count) of a row of bytes, lowest first.
uint8_t BitsAt(const std::byte* bytes, int64_t at, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i, ++at) {
    value |= (std::to_integer<int>(bytes[at / 8]) >> (at % 8) & 1) << i;
  }
  return static_cast<uint8_t>(value);
}

// The slow way to a row's integers, scales and biases.
void UnpackWholeRow(const Weights& weights, int64_t row, std::vector<uint8_t>& q, std::vector<float>& scales,
                    std::vector<float>& biases) {
  const WeightMatrix& w = weights.matrix;
  const std::vector<float>& row_scales = weights.row_scales;
  const WeightCoding& coding = *w.coding;
  const int group = Int8GroupOf(w);
  q.resize(static_cast<size_t>(w.cols));
  scales.resize(static_cast<size_t>(w.cols / group));
  biases.resize(scales.size());
  if (!coding.mlx()) {
    const BlockFormat& format = *FindBlockFormat(coding.Name());
    const int64_t blocks = w.cols / format.values;
    format.integers.unpack(static_cast<const std::byte*>(w.data) + row * blocks * format.bytes, blocks,
                           q.data(), scales.data(), biases.data());
    for (size_t g = 0; g < scales.size() && !row_scales.empty(); ++g) {
      scales[g] *= row_scales[static_cast<size_t>(row)];
      biases[g] *= row_scales[static_cast<size_t>(row)];
    }
    return;
  }
  const MlxGroups& mlx = *coding.mlx();
  for (int64_t k = 0; k < w.cols; ++k) {
    q[static_cast<size_t>(k)] = BitsAt(mlx.packed, (row * w.cols + k) * mlx.bits, mlx.bits);
  }
  for (int64_t g = 0; g < w.cols / group; ++g) {
    const int64_t of_mlx = (row * w.cols + g * group) / mlx.group_size;
    std::memcpy(&scales[static_cast<size_t>(g)], mlx.scales + 4 * of_mlx, 4);
    std::memcpy(&biases[static_cast<size_t>(g)], mlx.biases + 4 * of_mlx, 4);
  }
}

void ExpectPanel(const Weights& weights, int64_t row, int64_t cols, int64_t first, int64_t depth,
                 Int8Weights kind) {
  const WeightMatrix& w = weights.matrix;
  SCOPED_TRACE(::testing::Message() << cols << " columns, depth " << first << " + " << depth);
  const Int8Kernel kernel = {"", kind, 4, nullptr};
  const int planes = Int8PlanesOf(w, kernel), group = Int8GroupOf(w);
  const int64_t plane = depth * kInt8PanelCols, groups = depth / group;
  Tensor q({planes * plane / 4}), scales({groups * kInt8PanelCols}), biases({groups * kInt8PanelCols});
  std::vector<uint8_t> scratch(static_cast<size_t>(plane));
  auto* const bytes = reinterpret_cast<uint8_t*>(q.data());
  UnpackInt8Panel(w, row, cols, first, depth, kernel, scratch.data(),
                  {bytes, scales.data(), biases.data(), plane, group});
  const bool is_signed = kind == Int8Weights::kSigned && w.coding->integers().bits == 8;
  std::vector<uint8_t> want;
  std::vector<float> want_scales, want_biases;
  for (int64_t c = 0; c < kInt8PanelCols; ++c) {
    UnpackWholeRow(weights, row + std::min(c, cols - 1), want, want_scales, want_biases);
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t at = k / 4 * 4 * kInt8PanelCols + 4 * c + k % 4;
      const int got = planes == 2 ? bytes[at] + 16 * bytes[plane + at] : bytes[at];
      ASSERT_EQ(is_signed ? got ^ 0x80 : got, want[static_cast<size_t>(first + k)])
          << "column " << c << ", depth " << k;
    }
    for (int64_t g = 0; g < groups; ++g) {
      const auto from = static_cast<size_t>(first / group + g);
      const float bias = want_biases[from] + (is_signed ? 128.0f * want_scales[from] : 0.0f);
      ASSERT_EQ(scales[g * kInt8PanelCols + c], want_scales[from]) << "column " << c << ", group " << g;
      ASSERT_EQ(biases[g * kInt8PanelCols + c], bias) << "column " << c << ", group " << g;
    }
  }
}

// All of a matrix of 21 rows and a part of its depth, for all kinds of kernels, also those of other machines.
void ExpectPanels(const Weights& weights) {
  const WeightMatrix& w = weights.matrix;
  const int64_t unit = Int8DepthUnit(w);
  ForEachTarget([&] {
    for (Int8Weights kind : {Int8Weights::kUnsigned, Int8Weights::kNibbles, Int8Weights::kSigned}) {
      ExpectPanel(weights, 0, 16, 0, w.cols, kind);
      ExpectPanel(weights, 16, 5, 0, w.cols, kind);
      ExpectPanel(weights, 20, 1, unit, w.cols - unit, kind);
    }
  });
}

TEST(UnpackInt8Panel, MlxWeights) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      SCOPED_TRACE(::testing::Message() << bits << " bits, groups of " << group);
      ExpectPanels(MlxWeights(21, 7 * group, bits, group));
    }
  }
}

TEST(UnpackInt8Panel, Blocks) {
  for (const BlockFormat& format : GgmlBlockFormats()) {
    SCOPED_TRACE(format.name);
    ExpectPanels(BlockWeights(21, 3 * format.values, format));
    ExpectPanels(BlockWeights(21, 8 * format.values, format));
  }
  std::vector<float> scales = Random(21, 9);
  ExpectPanels(BlockWeights(21, 192, *FindBlockFormat("I8"), scales));
}

}  // namespace
}  // namespace qwen_image

#include "weights/quantize_mlx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/fail.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

struct Quantized {
  std::string packed, scales, biases;
  MlxGroupBytes to() {
    return {reinterpret_cast<std::byte*>(packed.data()), reinterpret_cast<std::byte*>(scales.data()),
            reinterpret_cast<std::byte*>(biases.data())};
  }
};

Quantized Quantize(const std::vector<float>& values, MlxQuantization q, DType dtype) {
  const size_t groups = values.size() / static_cast<size_t>(q.group_size);
  Quantized result;
  result.packed.resize(values.size() * static_cast<size_t>(q.bits) / 8);
  result.scales.resize(groups * SizeOf(dtype));
  result.biases.resize(groups * SizeOf(dtype));
  QuantizeMlx(values.data(), static_cast<int64_t>(groups), q, dtype, result.to());
  return result;
}

std::string BytesOf(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.tensors().at(name).bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Written by MLX itself: tools/reference/mlx_goldens.py.
TEST(QuantizeMlx, IsBitForBitWhatMlxDoes) {
  const SafetensorsFile file(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/mlx/quantize.safetensors");
  for (const auto& [kind, dtype] : {std::pair{"float32", DType::kF32}, std::pair{"bfloat16", DType::kBF16}}) {
    const StoredTensor& stored = file.tensors().at(fmt::format("{}.values", kind));
    std::vector<float> values(static_cast<size_t>(ElementCount(stored.shape)));
    ConvertToFloat(stored.bytes.data(), dtype, static_cast<int64_t>(values.size()), values.data());
    for (const int bits : kMlxBits) {
      for (const int group_size : kMlxGroupSizes) {
        const std::string name = fmt::format("{}.bits{}_group{}", kind, bits, group_size);
        SCOPED_TRACE(name);
        const Quantized got = Quantize(values, {bits, group_size}, dtype);
        EXPECT_TRUE(got.packed == BytesOf(file, name + ".weight"));
        EXPECT_TRUE(got.scales == BytesOf(file, name + ".scales"));
        EXPECT_TRUE(got.biases == BytesOf(file, name + ".biases"));
      }
    }
  }
}

// Half a step, and what the rounding of scale and bias moves the value by.
TEST(QuantizeMlx, ErrorIsThatOfTheFormat) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.05f);
  for (const int bits : kMlxBits) {
    for (const int group_size : kMlxGroupSizes) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        SCOPED_TRACE(fmt::format("{} bits, groups of {}, {}", bits, group_size, NameOf(dtype)));
        std::vector<float> values(static_cast<size_t>(8 * group_size)), back(values.size());
        for (float& value : values) value = normal(random);
        Quantized q = Quantize(values, {bits, group_size}, dtype);
        const MlxGroupBytes to = q.to();
        const MlxGroups groups{.bits = bits,
                               .group_size = group_size,
                               .packed = to.packed,
                               .scales = to.scales,
                               .biases = to.biases,
                               .scales_dtype = dtype,
                               .biases_dtype = dtype};
        groups.Dequantize(0, 8, back.data());
        const double largest_q = (1 << bits) - 1, epsilon = dtype == DType::kF32   ? 0x1p-24
                                                            : dtype == DType::kF16 ? 0x1p-11
                                                                                   : 0x1p-8;
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t group = i / static_cast<size_t>(group_size) * static_cast<size_t>(group_size);
          const auto [low, high] = std::minmax_element(
              values.begin() + static_cast<ptrdiff_t>(group),
              values.begin() + static_cast<ptrdiff_t>(group) + static_cast<ptrdiff_t>(group_size));
          // Moving zero to a whole q widens the step by at most half a step of the farther end's count,
          // which is at least half of all.
          const double step = (*high - *low) / largest_q * (1 + 1 / (largest_q - 1));
          const double end = std::max(std::abs(*low), std::abs(*high));
          const double cut = step / 2;  // the other end may lie half a step beyond the largest q
          ASSERT_LE(std::abs(values[i] - back[i]), step / 2 + cut + epsilon * (end + largest_q * step)) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace qwen_image

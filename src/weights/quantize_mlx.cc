#include "weights/quantize_mlx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace qwen_image {
namespace {

constexpr size_t kUnit = 8;  // values that fill whole bytes whatever their bits
constexpr size_t kMaxGroupSize = 128;

struct Affine {
  float scale = 0, bias = 0;
};

// The end of the range that is farther from zero is the bias, and zero itself becomes a whole q: it is by far
// the most frequent neighbourhood of weights. The scale is negative when that end is the upper one.
Affine ChooseAffine(const float* values, size_t count, float largest_q) {
  constexpr float kMinScale = 1e-7f;  // MLX's
  float low = values[0], high = values[0];
  for (size_t i = 1; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  const bool from_low = std::abs(low) > std::abs(high);
  const float edge = from_low ? low : high;
  const float step = std::max((high - low) / largest_q, kMinScale);
  const float scale = from_low ? step : -step;
  const float zero = std::rint(edge / scale);
  if (zero == 0) return {scale, 0};
  return {edge / zero, edge};
}

void ChooseQ(const float* values, size_t count, Affine affine, float largest_q, uint8_t* q) {
  // Added to a number from 0 to 255, this leaves its nearest whole number in the lowest bits: rounding that
  // the compiler vectorises for every processor.
  constexpr float kRound = 0x1.8p23f;
  for (size_t i = 0; i < count; ++i) {
    const float at = (values[i] - affine.bias) / affine.scale;
    q[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(std::min(std::max(at, 0.0f), largest_q) + kRound));
  }
}

void Pack(const uint8_t* q, size_t count, int bits, std::byte* to) {
  const auto width = static_cast<size_t>(bits);
  for (size_t done = 0; done < count; done += kUnit) {
    uint64_t unit = 0;
    for (size_t i = 0; i < kUnit; ++i) unit |= static_cast<uint64_t>(q[done + i]) << (i * width);
    std::memcpy(to, &unit, width);
    to += width;
  }
}

}  // namespace

void QuantizeMlx(const float* values, int64_t groups, MlxQuantization quantization, DType dtype,
                 const MlxGroupBytes& to) {
  const auto size = static_cast<size_t>(quantization.group_size);
  const size_t group_bytes = static_cast<size_t>(quantization.bits) * size / 8, scale_bytes = SizeOf(dtype);
  const auto largest_q = static_cast<float>((1 << quantization.bits) - 1);
  std::array<uint8_t, kMaxGroupSize> q;
  for (size_t group = 0; group < static_cast<size_t>(groups); ++group, values += size) {
    const Affine affine = ChooseAffine(values, size, largest_q);
    ChooseQ(values, size, affine, largest_q, q.data());
    Pack(q.data(), size, quantization.bits, to.packed + group * group_bytes);
    ConvertFromFloat(&affine.scale, dtype, 1, to.scales + group * scale_bytes);
    ConvertFromFloat(&affine.bias, dtype, 1, to.biases + group * scale_bytes);
  }
}

}  // namespace qwen_image

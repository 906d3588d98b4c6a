#include "core/block_format.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/dtype.h"
#include "core/ggml_blocks.h"

namespace qwen_image {
namespace {

template <DType dtype>
void DecodeFloats(const std::byte* blocks, int64_t count, float* to) {
  ConvertToFloat(blocks, dtype, count, to);
}

void DecodeF64(const std::byte* blocks, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    double value;
    std::memcpy(&value, blocks + 8 * i, 8);
    to[i] = static_cast<float>(value);
  }
}

// A byte pointer may point into `to` as far as the compiler knows; without the promise that it does not, it
// converts one value at a time.
template <typename Byte, float (*convert)(Byte)>
void DecodeBytes(const std::byte* __restrict blocks, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = convert(static_cast<Byte>(blocks[i]));
}

float FloatFromI8(int8_t value) { return value; }

constexpr int kI8Group = 64;  // any would do: it has no scales

constexpr uint8_t kI8Flip = 0x80;

void ReadI8Scales(const std::byte*, int64_t count, float* scales, float* biases) {
  std::fill_n(scales, count / kI8Group, 1.0f);
  std::fill_n(biases, count / kI8Group, -128.0f);
}

void UnpackI8(const std::byte* blocks, int64_t count, uint8_t* q, float* scales, float* biases) {
  for (int64_t i = 0; i < count; ++i) q[i] = static_cast<uint8_t>(blocks[i]) ^ kI8Flip;
  ReadI8Scales(blocks, count, scales, biases);
}

constexpr BlockFormat kPlainFormats[] = {
    {"F32", 1, 4, DecodeFloats<DType::kF32>},
    {"F16", 1, 2, DecodeFloats<DType::kF16>},
    {"BF16", 1, 2, DecodeFloats<DType::kBF16>},
    {"F64", 1, 8, DecodeF64},
    {"F8_E4M3", 1, 1, DecodeBytes<uint8_t, FloatFromE4M3>},
    {"F8_E5M2", 1, 1, DecodeBytes<uint8_t, FloatFromE5M2>},
    {"I8",
     1,
     1,
     DecodeBytes<int8_t, FloatFromI8>,
     {kI8Group, 8, UnpackI8, {.bits = 8, .flip = kI8Flip}, ReadI8Scales}},
};

}  // namespace

const BlockFormat* FindBlockFormat(std::string_view name) {
  for (const std::span<const BlockFormat> formats :
       {std::span<const BlockFormat>(kPlainFormats), GgmlBlockFormats()}) {
    const auto found = std::find_if(formats.begin(), formats.end(),
                                    [&](const BlockFormat& format) { return format.name == name; });
    if (found != formats.end()) return &*found;
  }
  return nullptr;
}

}  // namespace qwen_image

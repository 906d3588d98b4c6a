// Element types of weights and tensors, and their conversion to float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qwen_image {

enum class DType : uint8_t { kF32, kF16, kBF16, kI64, kU8 };

size_t SizeOf(DType dtype);
std::string_view NameOf(DType dtype);  // as safetensors spells it: "F32", "BF16", …
inline bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

inline float FloatFromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Choices are made between constants only, so that the compiler vectorises loops of these. A subnormal
// number, which has no hidden 1 above its mantissa, is read as if it had one, and the 1 is subtracted again.
inline float FloatFromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fff;
  const uint32_t bias = magnitude < 0x0400 ? 113 : magnitude < 0x7c00 ? 112 : 224;  // 224: infinity and NaN
  const float hidden = magnitude < 0x0400 ? 0x1p-14f : 0.0f;
  const float value = std::bit_cast<float>((magnitude << 13) + (bias << 23)) - hidden;
  return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x8000) << 16 | std::bit_cast<uint32_t>(value));
}

// The kind that torch calls "fn", as OCP specifies it: no infinities, and of the highest exponent only all
// ones is NaN.
inline float FloatFromE4M3(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  const uint32_t bias = magnitude < 8 ? 121 : magnitude < 0x7f ? 120 : 240;
  const float hidden = magnitude < 8 ? 0x1p-6f : 0.0f;
  const float value = std::bit_cast<float>((magnitude << 20) + (bias << 23)) - hidden;
  return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x80) << 24 | std::bit_cast<uint32_t>(value));
}
inline float FloatFromE5M2(uint8_t bits) { return FloatFromF16(static_cast<uint16_t>(bits << 8)); }

// Rounded to the nearest, ties to even, as torch does. NaN stays NaN; what is too large becomes infinite.
inline uint16_t Bf16FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint16_t F16FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // from 65520 on
  if (magnitude < 0x38800000) {
    // Below 2^-14 numbers are multiples of 2^-24: an addition in a range with that spacing rounds to them.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

// Converts `count` elements of type F32, F16 or BF16 to float. `from` may be unaligned.
void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to);
// The other way, rounded.
void ConvertFromFloat(const float* from, DType dtype, int64_t count, void* to);

}  // namespace qwen_image

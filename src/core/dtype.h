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

// Without branches, so that the compiler vectorises loops of it, and without subnormal floats on the way,
// which a processor may be told to take for zero.
inline float FloatFromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (112 << 23);  // from the exponent's bias 15 to 127
  const uint32_t infinite = normal + (112 << 23);           // or NaN: from exponent 31 to 255
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t result = magnitude < 0x0400 ? subnormal : magnitude < 0x7c00 ? normal : infinite;
  return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x8000) << 16 | result);
}

// The kind that torch calls "fn", as OCP specifies it: no infinities, and of the highest exponent only all
// ones is NaN.
inline float FloatFromE4M3(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  const uint32_t normal = (magnitude << 20) + (120 << 23);  // from the exponent's bias 7 to 127
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f);
  const uint32_t result = magnitude < 8 ? subnormal : magnitude < 0x7f ? normal : 0x7fc00000;
  return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x80) << 24 | result);
}
inline float FloatFromE5M2(uint8_t bits) { return FloatFromF16(static_cast<uint16_t>(bits << 8)); }

// Converts `count` elements of type F32, F16 or BF16 to float. `from` may be unaligned.
void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to);

}  // namespace qwen_image

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
float FloatFromF16(uint16_t bits);

// Converts `count` elements of type F32, F16 or BF16 to float. `from` may be unaligned.
void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to);

}  // namespace qwen_image

// Element types of weights and tensors, and their conversion. What files call each of them stands in the
// table of core/block_format.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qwen_image {

// Every type that is known. Weights are computed with those that their BlockFormat decodes.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,  // the three that kernels read as they are
  kF64,
  kF8E4M3,
  kF8E5M2,  // the last of the floating-point types
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,  // the last of the plain types, of one value each
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,  // the last of ggml's blocks that are decoded; of the following only the sizes are known
  kQ8_1,
  kQ8_K,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ3_XXS,
  kIQ1_S,
  kIQ3_S,
  kIQ2_S,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
  kGivenUp,  // types that ggml once had
};

size_t SizeOf(DType dtype);            // of one plain value, or of a block
std::string_view NameOf(DType dtype);  // as safetensors and GGUF files spell it: "F32", "Q4_K", …

// Whether a kernel reads such numbers as they are: F32, F16, BF16.
inline bool IsComputeType(DType dtype) { return dtype <= DType::kBF16; }
inline bool IsFloatingPoint(DType dtype) { return dtype <= DType::kF8E5M2; }
inline bool IsPlain(DType dtype) { return dtype <= DType::kBool; }
inline bool IsFp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

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

// Converts `count` values of any plain type, which may be unaligned, to double, float or int64_t (this one
// from integers only). Integers beyond what `To` holds exactly are rounded.
template <typename To>
void ConvertElements(DType dtype, const std::byte* from, int64_t count, To* to);

extern template void ConvertElements(DType, const std::byte*, int64_t, double*);
extern template void ConvertElements(DType, const std::byte*, int64_t, float*);
extern template void ConvertElements(DType, const std::byte*, int64_t, int64_t*);

}  // namespace qwen_image

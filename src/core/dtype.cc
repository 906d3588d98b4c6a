#include "core/dtype.h"

#include <cstring>

namespace qwen_image {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

namespace {

// One loop for each type, of which the compiler knows that its ends do not overlap: so that it vectorises.
template <float (*convert)(uint16_t)>
void ConvertHalves(const unsigned char* __restrict from, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = convert(bits);
  }
}

}  // namespace

void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
  } else if (dtype == DType::kBF16) {
    ConvertHalves<FloatFromBf16>(bytes, count, to);
  } else {
    ConvertHalves<FloatFromF16>(bytes, count, to);
  }
}

void ConvertFromFloat(const float* from, DType dtype, int64_t count, void* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return;
  }
  auto* bytes = static_cast<unsigned char*>(to);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kBF16 ? Bf16FromFloat(from[i]) : F16FromFloat(from[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace qwen_image

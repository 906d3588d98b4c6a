#include "core/dtype.h"

#include <bit>
#include <cstring>

#include "core/fail.h"

namespace qwen_image {

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

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in the file");

template <typename Bits, float (*convert)(Bits)>
struct AsFloat {
  Bits bits;
  operator float() const { return convert(bits); }  // NOLINT(google-explicit-constructor): it stands for one
};

struct Bool {
  uint8_t byte;
  operator int64_t() const { return byte != 0; }  // NOLINT(google-explicit-constructor): it stands for one
};

template <typename From, typename To>
void Convert(const std::byte* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));  // may be unaligned
    to[i] = static_cast<To>(value);
  }
}

}  // namespace

void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  if (dtype == DType::kF32) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * 4);  // of nothing both may be null
  } else if (dtype == DType::kBF16) {
    ConvertHalves<FloatFromBf16>(bytes, count, to);
  } else {
    ConvertHalves<FloatFromF16>(bytes, count, to);
  }
}

void ConvertFromFloat(const float* from, DType dtype, int64_t count, void* to) {
  if (dtype == DType::kF32) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return;
  }
  auto* bytes = static_cast<unsigned char*>(to);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kBF16 ? Bf16FromFloat(from[i]) : F16FromFloat(from[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

template <typename To>
void ConvertElements(DType dtype, const std::byte* from, int64_t count, To* to) {
  switch (dtype) {
    case DType::kF64:
      return Convert<double>(from, count, to);
    case DType::kF32:
      return Convert<float>(from, count, to);
    case DType::kF16:
      return Convert<AsFloat<uint16_t, FloatFromF16>>(from, count, to);
    case DType::kBF16:
      return Convert<AsFloat<uint16_t, FloatFromBf16>>(from, count, to);
    case DType::kF8E4M3:
      return Convert<AsFloat<uint8_t, FloatFromE4M3>>(from, count, to);
    case DType::kF8E5M2:
      return Convert<AsFloat<uint8_t, FloatFromE5M2>>(from, count, to);
    case DType::kI64:
      return Convert<int64_t>(from, count, to);
    case DType::kI32:
      return Convert<int32_t>(from, count, to);
    case DType::kI16:
      return Convert<int16_t>(from, count, to);
    case DType::kI8:
      return Convert<int8_t>(from, count, to);
    case DType::kU64:
      return Convert<uint64_t>(from, count, to);
    case DType::kU32:
      return Convert<uint32_t>(from, count, to);
    case DType::kU16:
      return Convert<uint16_t>(from, count, to);
    case DType::kU8:
      return Convert<uint8_t>(from, count, to);
    case DType::kBool:
      return Convert<Bool>(from, count, to);
    default:
      Fail(ErrorKind::kInternal, "values of type {} are not plain", NameOf(dtype));
  }
}

template void ConvertElements(DType, const std::byte*, int64_t, double*);
template void ConvertElements(DType, const std::byte*, int64_t, float*);
template void ConvertElements(DType, const std::byte*, int64_t, int64_t*);

}  // namespace qwen_image

#include "files/element_type.h"

#include <bit>
#include <cstring>
#include <iterator>

#include "core/dtype.h"

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in the file");

constexpr ElementType kTypes[] = {
    {Element::kF64, 8, "float64", "<f8", "F64"}, {Element::kF32, 4, "float32", "<f4", "F32"},
    {Element::kF16, 2, "float16", "<f2", "F16"}, {Element::kBF16, 2, "bfloat16", "", "BF16"},
    {Element::kI64, 8, "int64", "<i8", "I64"},   {Element::kI32, 4, "int32", "<i4", "I32"},
    {Element::kI16, 2, "int16", "<i2", "I16"},   {Element::kI8, 1, "int8", "|i1", "I8"},
    {Element::kU64, 8, "uint64", "<u8", "U64"},  {Element::kU32, 4, "uint32", "<u4", "U32"},
    {Element::kU16, 2, "uint16", "<u2", "U16"},  {Element::kU8, 1, "uint8", "|u1", "U8"},
    {Element::kBool, 1, "bool", "|b1", "BOOL"}};

const ElementType* Find(std::string_view ElementType::*format, std::string_view name) {
  if (name.empty()) return nullptr;
  for (const ElementType& type : kTypes) {
    if (type.*format == name) return &type;
  }
  return nullptr;
}

struct Half {
  uint16_t bits;
  operator float() const { return FloatFromF16(bits); }
};

struct BFloat {
  uint16_t bits;
  operator float() const { return FloatFromBf16(bits); }
};

struct Bool {
  uint8_t byte;
  operator int64_t() const { return byte != 0; }
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

const ElementType* ElementTypeOfNpy(std::string_view descr) { return Find(&ElementType::npy, descr); }
const ElementType* ElementTypeOfSafetensors(std::string_view dtype) {
  return Find(&ElementType::safetensors, dtype);
}

template <typename To>
void ConvertElements(Element element, const std::byte* from, int64_t count, To* to) {
  switch (element) {
    case Element::kF64:
      return Convert<double>(from, count, to);
    case Element::kF32:
      return Convert<float>(from, count, to);
    case Element::kF16:
      return Convert<Half>(from, count, to);
    case Element::kBF16:
      return Convert<BFloat>(from, count, to);
    case Element::kI64:
      return Convert<int64_t>(from, count, to);
    case Element::kI32:
      return Convert<int32_t>(from, count, to);
    case Element::kI16:
      return Convert<int16_t>(from, count, to);
    case Element::kI8:
      return Convert<int8_t>(from, count, to);
    case Element::kU64:
      return Convert<uint64_t>(from, count, to);
    case Element::kU32:
      return Convert<uint32_t>(from, count, to);
    case Element::kU16:
      return Convert<uint16_t>(from, count, to);
    case Element::kU8:
      return Convert<uint8_t>(from, count, to);
    case Element::kBool:
      return Convert<Bool>(from, count, to);
  }
}

template void ConvertElements(Element, const std::byte*, int64_t, double*);
template void ConvertElements(Element, const std::byte*, int64_t, float*);
template void ConvertElements(Element, const std::byte*, int64_t, int64_t*);

}  // namespace qwen_image

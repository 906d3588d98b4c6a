// Element types of arrays in files: what the formats call them, and their conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qwen_image {

enum class Element : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

struct ElementType {
  Element element = Element::kF32;
  size_t size = 4;
  std::string_view name;         // NumPy's: "float32"; and "bfloat16"
  std::string_view npy;          // in a .npy header: "<f4"; empty: NumPy has none
  std::string_view safetensors;  // in a safetensors header: "F32"

  bool is_float() const { return element <= Element::kBF16; }
};

// Null for a type that is not read here.
const ElementType* ElementTypeOfNpy(std::string_view descr);
const ElementType* ElementTypeOfSafetensors(std::string_view dtype);

// Converts `count` little-endian elements, which may be unaligned, to double, float or int64_t (this one from
// integers only).
template <typename To>
void ConvertElements(Element element, const std::byte* from, int64_t count, To* to);

extern template void ConvertElements(Element, const std::byte*, int64_t, double*);
extern template void ConvertElements(Element, const std::byte*, int64_t, float*);
extern template void ConvertElements(Element, const std::byte*, int64_t, int64_t*);

}  // namespace qwen_image

#include "weights/inspect/weight_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.h"

namespace qwen_image {
namespace {

template <typename T>
T Load(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void ConvertNumbers(const std::byte* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(Load<T>(from, i));
}

template <typename Bits, float (*convert)(Bits)>
void ConvertFloats(const std::byte* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(convert(Load<Bits>(from, i)));
}

void ConvertBool(const std::byte* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] == std::byte{0} ? 0.0 : 1.0;
}

struct Type {
  std::string_view name;
  size_t bytes;
  void (*convert)(const std::byte* from, int64_t count, double* to);
};
constexpr Type kTypes[] = {
    {"BF16", 2, ConvertFloats<uint16_t, FloatFromBf16>},
    {"F16", 2, ConvertFloats<uint16_t, FloatFromF16>},
    {"F32", 4, ConvertNumbers<float>},
    {"F64", 8, ConvertNumbers<double>},
    {"F8_E4M3", 1, ConvertFloats<uint8_t, FloatFromE4M3>},
    {"F8_E5M2", 1, ConvertFloats<uint8_t, FloatFromE5M2>},
    {"I8", 1, ConvertNumbers<int8_t>},
    {"U8", 1, ConvertNumbers<uint8_t>},
    {"I16", 2, ConvertNumbers<int16_t>},
    {"U16", 2, ConvertNumbers<uint16_t>},
    {"I32", 4, ConvertNumbers<int32_t>},
    {"U32", 4, ConvertNumbers<uint32_t>},
    {"I64", 8, ConvertNumbers<int64_t>},
    {"U64", 8, ConvertNumbers<uint64_t>},
    {"BOOL", 1, ConvertBool},
};

}  // namespace

WeightValues::WeightValues(const StoredTensor& entry, double scale) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const Type& t) { return t.name == entry.dtype; });
  // The safetensors reader lets no other type through.
  if (type == std::end(kTypes)) Fail(ErrorKind::kInternal, "no conversion for {}", entry.dtype);
  source_ = Plain{&entry, type->convert, type->bytes, scale};
}

int64_t WeightValues::count() const {
  if (const auto* packed = std::get_if<MlxQuantizedTensor>(&source_)) return ElementCount(packed->shape());
  const Plain& plain = std::get<Plain>(source_);
  return static_cast<int64_t>(plain.entry->bytes.size() / plain.element_bytes);
}

void WeightValues::Read(int64_t first, int64_t count, double* to) const {
  if (const auto* packed = std::get_if<MlxQuantizedTensor>(&source_)) {
    std::array<float, kMaxRead> values;
    const int group_size = packed->quantization().group_size;
    packed->Dequantize(first / group_size, count / group_size, values.data());
    std::copy_n(values.begin(), count, to);
    return;
  }
  const Plain& plain = std::get<Plain>(source_);
  plain.convert(plain.entry->bytes.data() + static_cast<size_t>(first) * plain.element_bytes, count, to);
  if (plain.scale != 1) std::for_each(to, to + count, [&](double& value) { value *= plain.scale; });
}

void WeightValues::ReleasePages(int64_t first, int64_t count) const {
  if (const auto* packed = std::get_if<MlxQuantizedTensor>(&source_)) {
    const int group_size = packed->quantization().group_size;
    packed->ReleasePages(first / group_size, count / group_size);
    return;
  }
  const Plain& plain = std::get<Plain>(source_);
  qwen_image::ReleasePages(plain.entry->bytes.subspan(static_cast<size_t>(first) * plain.element_bytes,
                                                      static_cast<size_t>(count) * plain.element_bytes));
}

}  // namespace qwen_image

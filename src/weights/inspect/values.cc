#include "weights/inspect/values.h"

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

const Type* FindType(std::string_view dtype) {
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return t.name == dtype; });
  return type == std::end(kTypes) ? nullptr : type;
}

}  // namespace

bool WeightValues::CanRead(std::string_view dtype) { return FindType(dtype) || FindBlockFormat(dtype); }

WeightValues::WeightValues(const StoredTensor& entry, double scale) {
  if (const Type* type = FindType(entry.dtype)) {
    source_ = Plain{&entry, type->convert, type->bytes, scale};
  } else if (const BlockFormat* format = FindBlockFormat(entry.dtype)) {
    source_ = Blocks{&entry, format};
  } else {
    Fail(ErrorKind::kInternal, "no conversion for {}", entry.dtype);
  }
}

int64_t WeightValues::count() const {
  if (const auto* packed = std::get_if<MlxQuantizedTensor>(&source_)) return ElementCount(packed->shape());
  if (const auto* blocks = std::get_if<Blocks>(&source_)) return ElementCount(blocks->entry->shape);
  const Plain& plain = std::get<Plain>(source_);
  return static_cast<int64_t>(plain.entry->bytes.size() / plain.element_bytes);
}

void WeightValues::Read(int64_t first, int64_t count, double* to) const {
  if (const auto* plain = std::get_if<Plain>(&source_)) {
    plain->convert(plain->entry->bytes.data() + static_cast<size_t>(first) * plain->element_bytes, count, to);
    if (plain->scale != 1) std::for_each(to, to + count, [&](double& value) { value *= plain->scale; });
    return;
  }
  std::array<float, kMaxRead> values;
  if (const auto* blocks = std::get_if<Blocks>(&source_)) {
    const BlockFormat& format = *blocks->format;
    format.decode(blocks->entry->bytes.data() + first / format.values * format.bytes, count / format.values,
                  values.data());
  } else {
    const auto& packed = std::get<MlxQuantizedTensor>(source_);
    const int group_size = packed.quantization().group_size;
    packed.Dequantize(first / group_size, count / group_size, values.data());
  }
  std::copy_n(values.begin(), count, to);
}

void WeightValues::ReleasePages(int64_t first, int64_t count) const {
  const auto release = [&](const StoredTensor& entry, int64_t block_values, int64_t block_bytes) {
    qwen_image::ReleasePages(entry.bytes.subspan(static_cast<size_t>(first / block_values * block_bytes),
                                                 static_cast<size_t>(count / block_values * block_bytes)));
  };
  if (const auto* packed = std::get_if<MlxQuantizedTensor>(&source_)) {
    const int group_size = packed->quantization().group_size;
    packed->ReleasePages(first / group_size, count / group_size);
  } else if (const auto* blocks = std::get_if<Blocks>(&source_)) {
    release(*blocks->entry, blocks->format->values, blocks->format->bytes);
  } else {
    const Plain& plain = std::get<Plain>(source_);
    release(*plain.entry, 1, static_cast<int64_t>(plain.element_bytes));
  }
}

}  // namespace qwen_image

#include "weights/inspect/values.h"

#include <algorithm>
#include <array>

namespace qwen_image {
bool WeightValues::CanRead(DType dtype) { return IsPlain(dtype) || FormatOf(dtype).decode; }

WeightValues::WeightValues(const StoredTensor& entry, double scale) {
  if (IsPlain(entry.dtype)) {
    source_ = Plain{&entry, SizeOf(entry.dtype), scale};
  } else {
    source_ = Blocks{&entry, &FormatOf(entry.dtype)};
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
    ConvertElements(plain->entry->dtype,
                    plain->entry->bytes.data() + static_cast<size_t>(first) * plain->element_bytes, count,
                    to);
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

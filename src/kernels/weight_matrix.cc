#include "kernels/weight_matrix.h"

namespace qwen_image {

int64_t WeightMatrix::bytes() const {
  if (!coding) return rows * cols * static_cast<int64_t>(SizeOf(dtype));
  return rows * (cols / coding->unit()) * (coding->unit_bytes() + coding->side_bytes());
}

void PrefetchBytes(const std::byte* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  constexpr int kRead = 0, kSecondLevel = 2;
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, kRead, kSecondLevel);
  __builtin_prefetch(from + bytes - 1, kRead, kSecondLevel);  // where lines begin is not known
}

void DecodeRow(const WeightMatrix& w, int64_t row, int64_t first, int64_t count, float* to) {
  if (!w.coding) {
    const auto* data = static_cast<const std::byte*>(w.data);
    return ConvertToFloat(data + (row * w.cols + first) * static_cast<int64_t>(SizeOf(w.dtype)), w.dtype,
                          count, to);
  }
  const int64_t unit = w.coding->unit();
  const int64_t begin = (row * w.cols + first) / unit;
  w.coding->Decode(w.Units(begin), row, begin, count / unit, to);
}

}  // namespace qwen_image

// The values of a stored tensor of any type, as double, read piece by piece: plain numbers, fp8 with a scale,
// GGUF's blocks, or packed MLX weights.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "core/block_format.h"
#include "files/weight_file.h"
#include "weights/mlx_quantized.h"

namespace qwen_image {

class WeightValues {
 public:
  // Reads must begin at a multiple of this: the largest group or block of quantized weights.
  static constexpr int64_t kAlignment = 256;

  static bool CanRead(DType dtype);
  // Every value is multiplied by `scale`. The entry must outlive this object.
  explicit WeightValues(const StoredTensor& entry, double scale = 1);
  explicit WeightValues(MlxQuantizedTensor tensor) : source_(std::move(tensor)) {}

  int64_t count() const;
  // Integers beyond 2⁵³ are rounded. At most kMaxRead values at once.
  static constexpr int64_t kMaxRead = 4096;
  void Read(int64_t first, int64_t count, double* to) const;
  void ReleasePages(int64_t first, int64_t count) const;

 private:
  struct Plain {
    const StoredTensor* entry;
    size_t element_bytes;
    double scale;
  };
  struct Blocks {
    const StoredTensor* entry;
    const BlockFormat* format;
  };
  std::variant<Plain, Blocks, MlxQuantizedTensor> source_;
};

}  // namespace qwen_image

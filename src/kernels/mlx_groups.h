// The format of MLX: packed integers with scales and biases beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "kernels/weight_matrix.h"

namespace qwen_image {

// Weights as MLX quantizes them (mode "affine"): groups of consecutive values of a row share a scale and a
// bias, w = scale · q + bias, with q unsigned. The q are packed without gaps, lowest bits first, into
// little-endian words; groups of a row are neighbours, then comes the next row.
struct MlxGroups {
  int bits = 0;                       // 2, 3, 4, 5, 6 or 8; 0: none
  int group_size = 0;                 // 32, 64 or 128
  const std::byte* packed = nullptr;  // all three may be unaligned
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  DType scales_dtype = DType::kF32;  // F32, F16 or BF16
  DType biases_dtype = DType::kF32;

  size_t group_bytes() const { return static_cast<size_t>(bits * group_size / 8); }
  void Dequantize(int64_t first_group, int64_t count, float* to /*[count, group_size]*/) const;
  void Unpack(int64_t first_group, int64_t count, uint8_t* to /*[count, group_size]*/) const;  // the q
  void ReadScales(int64_t first_group, int64_t count, float* scales_to, float* biases_to) const;
};

// `packed` is the data of the matrix.
std::shared_ptr<const WeightCoding> MakeMlxCoding(const MlxGroups& groups);

}  // namespace qwen_image

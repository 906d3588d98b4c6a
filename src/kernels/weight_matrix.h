// A weight matrix where it lies, usually in a memory-mapped file, in any of the encodings that are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/block_format.h"
#include "core/dtype.h"

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

// How the values of a matrix that does not hold plain F32, F16 or BF16 numbers are stored.
struct WeightCoding {
  const BlockFormat* blocks = nullptr;  // either blocks …
  std::vector<float> scales;            // … times this: nothing, one number for all, or one for each row
  MlxGroups groups;                     // or groups
  // Decoding starts and ends at multiples of this.
  int64_t unit() const { return blocks ? blocks->values : groups.group_size; }
};

// Not owned, except for the coding, which is shared.
struct WeightMatrix {
  const void* data = nullptr;                            // [rows, cols], row-major; may be unaligned
  DType dtype = DType::kF32;                             // F32, F16 or BF16; of no meaning with a coding
  int64_t rows = 0;                                      // outputs
  int64_t cols = 0;                                      // inputs
  std::shared_ptr<const WeightCoding> coding = nullptr;  // null: plain numbers
};

// Values [first, first + count) of a row. With a coding `first` is a multiple of its unit, and so is `count`
// (a row is whole units).
void DecodeRow(const WeightMatrix& w, int64_t row, int64_t first, int64_t count, float* to);

}  // namespace qwen_image

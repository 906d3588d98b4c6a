// A weight matrix where it lies, usually in a memory-mapped file, in any of the encodings that are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/block_format.h"
#include "core/dtype.h"

namespace qwen_image {

struct MlxGroups;  // kernels/mlx_groups.h

// Values as integers with a scale and a bias for every group: value = scale · q + bias, up to the rounding of
// that sum.
struct IntegerForm {
  int group = 0;               // 16, 32 or 64 values; 0: the values are none
  int bits = 0;                // of the largest q
  PackedIntegers packed = {};  // where the units keep them, if that is of use
  // Above 0: the integers are those of matrix · rotation, in groups of so many values, so activations must be
  // rotated too (kernels/rotated_int8.h).
  int64_t rotation = 0;
};

// How the values of a matrix that does not hold plain F32, F16 or BF16 numbers are stored: as units, each a
// fixed number of bytes for a fixed number of values, and perhaps tensors beside them. A format is one class.
// Calls are for many units at once, so that they cost nothing.
class WeightCoding {
 public:
  virtual ~WeightCoding() = default;

  virtual std::string Name() const = 0;   // of the format, for people: "Q4_K", "MLX 4-bit"
  int64_t unit() const { return unit_; }  // values; decoding starts and ends at multiples of it
  int64_t unit_bytes() const { return unit_bytes_; }
  int64_t side_bytes() const { return side_bytes_; }  // of a unit, in the tensors beside it
  const IntegerForm& integers() const { return integers_; }
  bool scales_rows() const { return scales_rows_; }  // each row by a number of its own

  // Units [first, first + count) of the matrix, which lie at `units` and in `row`.
  virtual void Decode(const std::byte* units, int64_t row, int64_t first, int64_t count,
                      float* to /*[count · unit]*/) const = 0;
  // The same as integers; `scales` and `biases` are [count · unit / integers().group]. A null q is not
  // wanted. Only for codings with integers.
  virtual void Unpack(const std::byte* units, int64_t row, int64_t first, int64_t count, uint8_t* q,
                      float* scales, float* biases) const = 0;
  // Asks for what lies beside these units, so that it is in the cache when they are unpacked.
  virtual void PrefetchSides(int64_t /*first*/, int64_t /*count*/) const {}

  // The groups, if they are those of MLX.
  virtual const MlxGroups* mlx() const { return nullptr; }

 protected:
  WeightCoding(int64_t unit, int64_t unit_bytes, int64_t side_bytes, IntegerForm integers, bool scales_rows)
      : unit_(unit),
        unit_bytes_(unit_bytes),
        side_bytes_(side_bytes),
        integers_(integers),
        scales_rows_(scales_rows) {}

 private:
  int64_t unit_, unit_bytes_, side_bytes_;
  IntegerForm integers_;
  bool scales_rows_;
};

// Not owned, except for the coding, which is shared.
struct WeightMatrix {
  const void* data = nullptr;                            // [rows, cols], row-major; may be unaligned
  DType dtype = DType::kF32;                             // F32, F16 or BF16; of no meaning with a coding
  int64_t rows = 0;                                      // outputs
  int64_t cols = 0;                                      // inputs
  std::shared_ptr<const WeightCoding> coding = nullptr;  // null: plain numbers

  // Where the units of a coding lie, from this one on.
  const std::byte* Units(int64_t first) const {
    return static_cast<const std::byte*>(data) + first * coding->unit_bytes();
  }
  int64_t bytes() const;  // in the file
};

// Asks for some bytes, so that they are in the second-level cache when they are read.
void PrefetchBytes(const std::byte* from, int64_t bytes);

// Values [first, first + count) of a row. With a coding `first` is a multiple of its unit, and so is `count`
// (a row is whole units).
void DecodeRow(const WeightMatrix& w, int64_t row, int64_t first, int64_t count, float* to);

}  // namespace qwen_image

// Floats to 8 bits and back, one row at a time.
#pragma once

#include <cstdint>

namespace qwen_image {

// Where row `row` of a tile is written; see Int8Rows.
struct Int8RowSlot {
  int8_t* a;
  float* scales;
  float* sums;
  int tile_rows;
  int row;
};

// How far 8 bits are from a row.
struct QuantizationError {
  double of_row = 0;      // Σ(x − scale·a)² / Σx²
  double of_typical = 0;  // the same, as if every group had the Σx² of the median one: so that what a spike
                          // does to its neighbours is seen although it is nothing beside the spike
};

// No error for a row of zeros. A row with NaN or infinity gets NaN for its scales, so that products with it
// are NaN.
QuantizationError QuantizeRow(const float* x, int64_t depth, int group, const Int8RowSlot& to);

// rest = x − scale·a
void SubtractQuantized(const float* x, int64_t depth, int group, const Int8RowSlot& quantized, float* rest);

}  // namespace qwen_image

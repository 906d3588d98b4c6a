// Floats to 8 bits and back.
#pragma once

#include <cstdint>

namespace qwen_image {

// A row of a tile; see Int8Rows. Its scales are where they belong. Its bytes `a` are those of the whole tile,
// or, as it is quantized, its own alone, [depth].
struct Int8Row {
  int8_t* a;
  float* scales;
  float* sums;
  int tile_rows;
  int row;
};

// How far 8 bits may be from a row.
struct QuantizationError {
  double of_row = 0;      // Σ(x − scale·a)² / Σx²
  double of_typical = 0;  // the same, as if every group had the Σx² of the median one: so that what a spike
                          // does to its neighbours is seen although it is nothing beside the spike
};

// Returns whether the error is within the limits, as it always is for a row of zeros. A row with NaN or
// infinity gets NaN for its scales, so that products with it are NaN; more bits would not help it.
bool QuantizeRow(const float* x, int64_t depth, int group, const QuantizationError& limits,
                 const Int8Row& to);

// Rows [rows][depth], whose bytes follow each other from first.a on. Their groups are looked at together,
// which is faster where a row has few of them. A group with NaN or infinity gets NaN for its scale.
void QuantizeShortRows(const float* x, int64_t rows, int64_t depth, int group, const Int8Row& first);

// Rows [rows][depth] into a tile, [depth / 4][tile_rows][4], from the row `first` on. Nothing else of the
// tile is written. `depth` is a multiple of 16.
void InterleaveRows(const int8_t* rows_of_bytes, int64_t rows, int64_t depth, const Int8Row& first);

// rest = x − scale·a
void SubtractQuantized(const float* x, int64_t depth, int group, const Int8Row& tile, float* rest);

}  // namespace qwen_image

// How a 3 × 3 convolution is cut into tasks, which share no output. How it is cut changes no bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/interface.h"

namespace qwen_image {

inline constexpr int64_t kConvTile = 4;  // outputs of a tile in each direction

struct TileBlock {
  int64_t top, left;           // in tiles of the picture
  int64_t rows, cols;          // in tiles
  int64_t out_begin, out_end;  // channels
  int64_t count() const { return rows * cols; }
};

// Rows [row_begin, row_end) of the output.
std::vector<TileBlock> CutConvolution(const Conv3x3Shape& shape, int64_t row_begin, int64_t row_end,
                                      int threads);

}  // namespace qwen_image

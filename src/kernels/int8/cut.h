// How products and attention in 8 bits are cut into tasks, which share no output. How they are cut changes no
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/int8/tile.h"
#include "kernels/weight_matrix.h"

namespace qwen_image {

// A task multiplies this many panels with some rows.
inline constexpr int64_t kInt8StripPanels = 4;
inline constexpr int64_t kInt8StripCols = kInt8StripPanels * kInt8PanelCols;

// The depth of a matrix is cut into blocks of this length, so that a strip's panels stay in L2 while the rows
// pass by.
int64_t Int8DepthBlock(const WeightMatrix& w);

// A product [rows, depth] · [cols, depth]ᵀ of the kernel in use.
struct Int8Size {
  int64_t rows, tile_rows;
  int64_t cols;    // rows of the weight matrix
  bool one_block;  // of the depth

  int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }
};
Int8Size Int8SizeOf(int64_t rows, const WeightMatrix& w);

struct Int8Cut {
  size_t product;  // its place among all
  int64_t first_tile, tiles;
  int64_t col, cols;
};

std::vector<Int8Cut> CutInt8Products(std::span<const Int8Size> products, int threads);

// How many queries of one head a task of attention in 8 bits takes; the last one of a head may have fewer.
int64_t Int8AttentionTaskQueries(int64_t queries, int64_t heads, int threads);

}  // namespace qwen_image

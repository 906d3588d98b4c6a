// The shape of the blocked matrix product that MatMul and Conv2d share; the arithmetic is in gemm-inl.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/interface.h"
#include "kernels/tasks.h"

namespace qwen_image {

// Products are summed over blocks of this many, one block after the other: a fixed number, so that a result
// does not depend on how many rows are multiplied at once. 256 · (6 + 16) floats are 22 KB: a tile's operands
// fit a 32 KB L1.
inline constexpr int64_t kDepthBlock = 256;
// Rows of the left matrix held in L2 (144 KB at kDepthBlock): a multiple of every register tile's 6 or 12
// rows.
inline constexpr int64_t kRowBlock = 144;
// Columns of a task, i.e. rows of the weight matrix, 384 KB packed. Read panel by panel, so L3 is near
// enough.
inline constexpr int64_t kStripCols = 384;

// The columns of a register tile are this many or a whole part of it, whatever the instruction set.
inline constexpr int64_t kWidestTile = 32;

// y[rows, cols] = a[rows, depth] · wᵀ + bias, where `a` is produced block by block.
struct GemmShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
};

// Rows of the left matrix as the register tiles read them, packed once for all tasks.
struct PackedRows {
  const float* data;  // [depth blocks][rows][kDepthBlock]
  int64_t first_row;
  int64_t rows;
  const float* At(int64_t row, int64_t k /*a multiple of kDepthBlock*/) const {
    return data + k * rows + (row - first_row) * kDepthBlock;
  }
};

struct GemmTask {
  int64_t row_begin, row_end;
  int64_t col_begin, col_end;
};

// The rows of a product with a weight matrix that are multiplied together: as many as make packing the
// weights cheap, few enough for their packed copy (57 MB at the model's largest depth).
inline constexpr int64_t kMaxRows = 8 * kRowBlock;
// All of them in parts of about the same size.
inline int64_t RowsAtOnce(int64_t rows) { return CeilDiv(rows, CeilDiv(rows, kMaxRows)); }

// Cuts `rows` (at most kMaxRows, from `first_row` on) of a product with a weight matrix into tasks that share
// no output. How it is cut does not change a result's bits, so that it may follow the number of threads: each
// row part packs the weights again, and more of them than the threads need only cost time.
std::vector<GemmTask> CutProduct(int64_t first_row, int64_t rows, int64_t cols, int threads);

// Cuts a convolution into tasks that share no output.
class GemmTasks {
 public:
  explicit GemmTasks(const GemmShape& shape) : shape_(shape) {
    // Enough tasks to keep many cores busy to the end; more of them would pack the same operands more often.
    // (At 1024 x 3072 x 3072 on one core: 64 tasks reach 79 % of peak, 32 tasks 83 %.)
    constexpr int64_t kWantedTasks = 32;
    const int64_t row_blocks = CeilDiv(shape.rows, kRowBlock);
    strip_ = kStripCols;
    while (strip_ > kStripCols / 4 && row_blocks * CeilDiv(shape.cols, strip_) < kWantedTasks / 2)
      strip_ /= 2;
    strips_ = CeilDiv(shape.cols, strip_);
    const int64_t parts =
        std::clamp<int64_t>(CeilDiv(kWantedTasks, strips_), CeilDiv(shape.rows, kMaxRows), row_blocks);
    constexpr int64_t kTileMultiple = 12;
    rows_ = RoundUp(CeilDiv(shape.rows, parts), kTileMultiple);
    row_parts_ = CeilDiv(shape.rows, rows_);
  }

  int64_t count() const { return strips_ * row_parts_; }
  // Neighbouring tasks read the same weights.
  GemmTask operator[](int64_t i) const {
    const int64_t row = i % row_parts_ * rows_;
    const int64_t col = i / row_parts_ * strip_;
    return {row, std::min(shape_.rows, row + rows_), col, std::min(shape_.cols, col + strip_)};
  }

 private:
  GemmShape shape_;
  int64_t strip_, strips_, rows_, row_parts_;
};

}  // namespace qwen_image

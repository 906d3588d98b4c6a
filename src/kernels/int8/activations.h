// Activations in 8 bits: x ≈ scale · a with |a| ≤ 127 and a scale for every group of a row.
//
// How good that is depends on the values: a group is as coarse as its largest one demands. The error of every
// row is measured as it is quantized, in two ways (see QuantizationError). With weights that do not know of
// it, a product's relative error is the row's. Rows above a limit get another 8 bits for what the first ones
// left over (the fine plane), after which the error is about 127² times smaller. They get them in those of
// their groups that are off most, as many as it takes to be within the limits: outliers stand in few
// channels. Which ones depends on no other row. The fine plane is not measured again: of a group with several
// spikes of different size its small values may still be lost, which are as small a share of the product.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "core/threads.h"
#include "kernels/int8/quantize.h"
#include "kernels/int8/tile.h"

namespace qwen_image {

// The first is what a kernel may be off by. The second is looser, since groups differ in any row: it is there
// for spikes, which take all bits from the 16 to 64 values around them.
inline constexpr QuantizationError kInt8Limits = {.of_row = 1e-4, .of_typical = 1e-3};

// Which rows get the fine plane.
enum class Int8Fineness { kWhereNeeded, kEverywhere };

// Gives row `row`, either where it lies or written to `buffer` (of the row's length): so that what computes
// a row may be fused with its quantization.
using RowSource = std::function<const float*(int64_t row, float* buffer)>;

class Int8Activations {
 public:
  // `group`, which divides the depth, is 16, 32 or 64. Memory is kept for the next call.
  void Quantize(int64_t rows, int64_t depth, int group, Int8Fineness fineness, const RowSource& source,
                ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t depth() const { return depth_; }
  int group() const { return group_; }
  int tile_rows() const { return tile_rows_; }
  int64_t tiles() const;
  int64_t fine_rows() const { return static_cast<int64_t>(fine_rows_.size()); }  // that have the fine plane

  // A tile's rows from the group `first_group` on.
  Int8Rows Coarse(int64_t tile, int64_t first_group) const { return At(coarse_, tile, first_group); }

  // Rows with a fine plane stand in tiles of their own, close together: the place of a row among them, or −1,
  // …
  int64_t FineRow(int64_t row) const { return fine_row_[static_cast<size_t>(row)]; }
  // … and how many there are before a tile (or, of `tiles()`, in all).
  int64_t FineRowsBefore(int64_t tile) const;
  Int8Rows Fine(int64_t fine_tile, int64_t first_group) const { return At(fine_, fine_tile, first_group); }
  // Whether any row of the tile has a fine plane there. Where it is false all integers are 0.
  bool HasFine(int64_t fine_tile, int64_t group) const {
    return fine_groups_[static_cast<size_t>(fine_tile * (depth_ / group_) + group)] != 0;
  }

 private:
  // Not initialised: the thread that quantizes a row is the first to touch its memory.
  struct Plane {
    Tensor a;             // int8_t [tiles][depth / 4][tile_rows][4]
    Tensor scales, sums;  // [tiles][groups][tile_rows]
    void Resize(int64_t tiles, int64_t tile_rows, int64_t depth, int group);
  };
  Int8Rows At(const Plane& plane, int64_t tile, int64_t first_group) const;
  Int8Row At(Plane& plane, int64_t row) const;  // of the plane: its tile's bytes
  // Rows of one tile.
  void QuantizeRows(int64_t first, int64_t rows, Int8Fineness fineness, const RowSource& source);
  void QuantizeFineTile(int64_t fine_tile, Int8Fineness fineness, const RowSource& source);

  int64_t rows_ = 0, depth_ = 0;
  int group_ = 0, tile_rows_ = 0;
  Plane coarse_, fine_;
  std::vector<int64_t> fine_row_;     // [rows]: the place in the fine plane, or −1
  std::vector<int64_t> fine_rows_;    // the rows that have one
  std::vector<uint8_t> fine_groups_;  // [fine tiles][groups]: HasFine
};

}  // namespace qwen_image

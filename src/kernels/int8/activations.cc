#include "kernels/int8/activations.h"

#include <algorithm>
#include <cmath>

#include "kernels/tasks.h"

namespace qwen_image {

void Int8Activations::Plane::Resize(int64_t tiles, int64_t tile_rows, int64_t depth, int group) {
  // Never smaller: the sizes of a model's layers alternate.
  const auto grow = [](Tensor& memory, int64_t floats) {
    if (memory.size() >= floats) return;
    memory = Tensor();  // give the old block back first
    memory = Tensor({floats});
  };
  const int64_t groups = tiles * tile_rows * (depth / group);
  grow(a, CeilDiv(tiles * tile_rows * depth, sizeof(float)));
  grow(scales, groups);
  grow(sums, groups);
}

int64_t Int8Activations::tiles() const { return CeilDiv(rows_, tile_rows_); }

int64_t Int8Activations::FineRowsBefore(int64_t tile) const {
  return std::lower_bound(fine_rows_.begin(), fine_rows_.end(), tile * tile_rows_) - fine_rows_.begin();
}

Int8Rows Int8Activations::At(const Plane& plane, int64_t tile, int64_t first_group) const {
  const int64_t group = (tile * (depth_ / group_) + first_group) * tile_rows_;
  return {reinterpret_cast<const int8_t*>(plane.a.data()) + group * group_, plane.scales.data() + group,
          plane.sums.data() + group};
}

Int8RowSlot Int8Activations::Slot(Plane& plane, int64_t row) const {
  const int64_t group = row / tile_rows_ * (depth_ / group_) * tile_rows_;
  return {reinterpret_cast<int8_t*>(plane.a.data()) + group * group_, plane.scales.data() + group,
          plane.sums.data() + group, tile_rows_, static_cast<int>(row % tile_rows_)};
}

void Int8Activations::Quantize(int64_t rows, int64_t depth, int group, Int8Fineness fineness,
                               const RowSource& source, ThreadPool& pool) {
  rows_ = rows;
  depth_ = depth;
  group_ = group;
  tile_rows_ = ChosenInt8Kernel().tile_rows;
  coarse_.Resize(tiles(), tile_rows_, depth, group);
  constexpr int64_t kWanted = 0;  // until all rows that want one are known
  fine_row_.assign(static_cast<size_t>(rows), -1);
  ForPieces(rows, 2 * depth * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    float* const buffer = ThreadScratch(depth);
    for (int64_t row = begin; row < end; ++row) {
      const QuantizationError error = QuantizeRow(source(row, buffer), depth, group, Slot(coarse_, row));
      const bool coarse = error.of_row > kInt8Limits.of_row || error.of_typical > kInt8Limits.of_typical;
      if (coarse || fineness == Int8Fineness::kEverywhere) fine_row_[static_cast<size_t>(row)] = kWanted;
    }
  });

  fine_rows_.clear();
  for (int64_t row = 0; row < rows; ++row) {
    int64_t& place = fine_row_[static_cast<size_t>(row)];
    if (place != kWanted) continue;
    place = static_cast<int64_t>(fine_rows_.size());
    fine_rows_.push_back(row);
  }
  const int64_t fine_tiles = CeilDiv(fine_rows(), tile_rows_);
  fine_.Resize(fine_tiles, tile_rows_, depth, group);
  ForTasks(fine_tiles, fine_rows() * depth, pool, [&](int64_t tile) { QuantizeFineTile(tile, source); });
}

void Int8Activations::QuantizeFineTile(int64_t fine_tile, const RowSource& source) {
  float* const buffer = ThreadScratch(2 * depth_);
  float* const rest = buffer + depth_;
  const int64_t first = fine_tile * tile_rows_;
  for (int64_t place = first; place < std::min(fine_rows(), first + tile_rows_); ++place) {
    const int64_t row = fine_rows_[static_cast<size_t>(place)];
    SubtractQuantized(source(row, buffer), depth_, group_, Slot(coarse_, row), rest);
    QuantizeRow(rest, depth_, group_, Slot(fine_, place));
  }
}

}  // namespace qwen_image

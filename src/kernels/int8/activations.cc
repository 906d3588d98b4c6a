#include "kernels/int8/activations.h"

#include <algorithm>
#include <cmath>

#include "kernels/tasks.h"

namespace qwen_image {

void Int8Activations::Plane::Resize(int64_t tiles, int64_t tile_rows, int64_t depth, int group) {
  // Never smaller: the sizes of a model's layers alternate.
  const auto values = static_cast<size_t>(tiles * tile_rows * depth);
  const auto groups = static_cast<size_t>(tiles * tile_rows * (depth / group));
  if (a.size() < values) a.resize(values);
  if (scales.size() < groups) scales.resize(groups);
  if (sums.size() < groups) sums.resize(groups);
}

int64_t Int8Activations::tiles() const { return CeilDiv(rows_, tile_rows_); }

int64_t Int8Activations::fine_rows() const {
  int64_t count = 0;
  for (int64_t tile = 0; tile < tiles(); ++tile) count += fine_tile(tile).count;
  return count;
}

Int8Rows Int8Activations::At(const Plane& plane, int64_t tile, int64_t first_group) const {
  const int64_t group = (tile * (depth_ / group_) + first_group) * tile_rows_;
  return {plane.a.data() + group * group_, plane.scales.data() + group, plane.sums.data() + group};
}

Int8RowSlot Int8Activations::Slot(Plane& plane, int64_t tile, int row) const {
  const int64_t group = tile * (depth_ / group_) * tile_rows_;
  return {plane.a.data() + group * group_, plane.scales.data() + group, plane.sums.data() + group, tile_rows_,
          row};
}

void Int8Activations::Quantize(int64_t rows, int64_t depth, int group, Int8Fineness fineness,
                               const RowSource& source, ThreadPool& pool) {
  rows_ = rows;
  depth_ = depth;
  group_ = group;
  tile_rows_ = ChosenInt8Kernel().tile_rows;
  coarse_.Resize(tiles(), tile_rows_, depth, group);
  fine_tiles_.assign(static_cast<size_t>(tiles()), {});
  const auto quantize = [&](int64_t tile) { QuantizeTile(tile, fineness, source); };
  ForTasks(tiles(), rows * depth, pool, quantize);

  std::vector<int64_t> refined;  // tiles with rows that want a fine plane
  for (int64_t tile = 0; tile < tiles(); ++tile) {
    FineTile& fine = fine_tiles_[static_cast<size_t>(tile)];
    if (fine.count == 0) continue;
    fine.index = static_cast<int64_t>(refined.size());
    refined.push_back(tile);
  }
  const auto count = static_cast<int64_t>(refined.size());
  if (count == 0) return;
  fine_.Resize(count, tile_rows_, depth, group);
  ForTasks(count, count * tile_rows_ * depth, pool,
           [&](int64_t i) { RefineTile(refined[static_cast<size_t>(i)], source); });
}

void Int8Activations::QuantizeTile(int64_t tile, Int8Fineness fineness, const RowSource& source) {
  float* const buffer = ThreadScratch(depth_);
  const int64_t first = tile * tile_rows_;
  FineTile& fine = fine_tiles_[static_cast<size_t>(tile)];
  for (int row = 0; row < std::min<int64_t>(tile_rows_, rows_ - first); ++row) {
    const QuantizationError error =
        QuantizeRow(source(first + row, buffer), depth_, group_, Slot(coarse_, tile, row));
    const bool coarse = error.of_row > kInt8Limits.of_row || error.of_typical > kInt8Limits.of_typical;
    if (coarse || fineness == Int8Fineness::kEverywhere) {
      fine.rows[static_cast<size_t>(fine.count++)] = static_cast<uint8_t>(row);
    }
  }
}

void Int8Activations::RefineTile(int64_t tile, const RowSource& source) {
  float* const buffer = ThreadScratch(2 * depth_);
  float* const rest = buffer + depth_;
  const FineTile& fine = fine_tile(tile);
  for (int i = 0; i < fine.count; ++i) {
    const int row = fine.rows[static_cast<size_t>(i)];
    const float* x = source(tile * tile_rows_ + row, buffer);
    SubtractQuantized(x, depth_, group_, Slot(coarse_, tile, row), rest);
    QuantizeRow(rest, depth_, group_, Slot(fine_, fine.index, i));
  }
}

}  // namespace qwen_image

#include "kernels/int8/activations.h"

#include <algorithm>
#include <cmath>

#include "kernels/tasks.h"

namespace qwen_image {
namespace {

constexpr int64_t kWanted = 0;  // a place in the fine plane, until all rows that want one are known

}  // namespace

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

Int8Row Int8Activations::At(Plane& plane, int64_t row) const {
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
  fine_row_.assign(static_cast<size_t>(rows), -1);
  ForPieces(rows, 2 * depth * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin, next = 0; row < end; row = next) {
      next = std::min(end, (row / tile_rows_ + 1) * tile_rows_);
      QuantizeRows(row, next - row, fineness, source);
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

// A row's bytes are spread over all cache lines of its tile, so those of all rows are written together.
void Int8Activations::QuantizeRows(int64_t first, int64_t rows, Int8Fineness fineness,
                                   const RowSource& source) {
  float* const buffer = ThreadScratch(depth_ + CeilDiv(rows * depth_, sizeof(float)));
  auto* const bytes = reinterpret_cast<int8_t*>(buffer + depth_);
  for (int64_t r = 0; r < rows; ++r) {
    Int8Row to = At(coarse_, first + r);
    to.a = bytes + r * depth_;
    const bool good = QuantizeRow(source(first + r, buffer), depth_, group_, kInt8Limits, to);
    if (!good || fineness == Int8Fineness::kEverywhere) fine_row_[static_cast<size_t>(first + r)] = kWanted;
  }
  InterleaveRows(bytes, rows, depth_, At(coarse_, first));
}

void Int8Activations::QuantizeFineTile(int64_t fine_tile, const RowSource& source) {
  const int64_t first = fine_tile * tile_rows_, rows = std::min<int64_t>(tile_rows_, fine_rows() - first);
  float* const buffer = ThreadScratch(2 * depth_ + CeilDiv(rows * depth_, sizeof(float)));
  float* const rest = buffer + depth_;
  auto* const bytes = reinterpret_cast<int8_t*>(rest + depth_);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = fine_rows_[static_cast<size_t>(first + r)];
    SubtractQuantized(source(row, buffer), depth_, group_, At(coarse_, row), rest);
    Int8Row to = At(fine_, first + r);
    to.a = bytes + r * depth_;
    QuantizeRow(rest, depth_, group_, kInt8Limits, to);
  }
  InterleaveRows(bytes, rows, depth_, At(fine_, first));
}

}  // namespace qwen_image

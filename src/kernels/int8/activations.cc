#include "kernels/int8/activations.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/tasks.h"

namespace qwen_image {
namespace {

constexpr int64_t kWanted = 0;  // a place in the fine plane, until all rows that want one are known

// Σ x²
double PowerOf(const float* x, int count) {
  constexpr int kParts = 16;  // that are added side by side; `count` is a multiple
  float parts[kParts] = {};
  for (int i = 0; i < count; i += kParts)
    for (int j = 0; j < kParts; ++j) parts[j] += x[i + j] * x[i + j];
  double power = 0;
  for (const float part : parts) power += static_cast<double>(part);
  return power;
}

// Of `rest`, what 8 bits leave over of a row x, keeps the groups that are off most and clears the others, as
// many as may stay coarse. Marks those that it keeps.
void KeepCoarsestGroups(const float* x, int64_t groups, int group, float* rest, uint8_t* kept) {
  // Of what a row may be off by in 8 bits: a row that needs more is made better than one that does not.
  // Chosen on a block whose values grow as the published model's do (tools/peers, line "errors"): with 0.06
  // most groups of normal values are kept, too; with 0.25 the block's error is twice that of all groups.
  constexpr double kShare = 0.12;
  std::vector<double> errors(static_cast<size_t>(groups)), powers(errors.size());
  double error = 0, power = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const auto at = static_cast<size_t>(g);
    error += errors[at] = PowerOf(rest + g * group, group);
    power += powers[at] = PowerOf(x + g * group, group);
  }
  std::nth_element(powers.begin(), powers.begin() + groups / 2, powers.end());
  const double typical = powers[static_cast<size_t>(groups / 2)] * static_cast<double>(groups);
  const double limit = kShare * std::min(kInt8Limits.of_row * power, kInt8Limits.of_typical * typical);
  std::vector<int64_t> order(errors.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto error_of = [&](int64_t g) { return errors[static_cast<size_t>(g)]; };
  // NaN and infinity are in no order; then all groups are kept.
  const bool finite = std::isfinite(error) && std::isfinite(power);
  if (finite)
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return error_of(a) > error_of(b) || (error_of(a) == error_of(b) && a < b);
    });
  for (const int64_t g : order) {
    if (!finite || (error > limit && error_of(g) > 0)) {
      kept[g] = 1;
      error -= error_of(g);
    } else {
      std::fill_n(rest + g * group, group, 0.0f);
    }
  }
}

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
  fine_groups_.assign(static_cast<size_t>(fine_tiles * (depth / group)), 0);
  ForTasks(fine_tiles, fine_rows() * depth, pool,
           [&](int64_t tile) { QuantizeFineTile(tile, fineness, source); });
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

void Int8Activations::QuantizeFineTile(int64_t fine_tile, Int8Fineness fineness, const RowSource& source) {
  const int64_t groups = depth_ / group_;
  uint8_t* const kept = fine_groups_.data() + fine_tile * groups;
  if (fineness == Int8Fineness::kEverywhere) std::fill_n(kept, groups, uint8_t{1});
  const int64_t first = fine_tile * tile_rows_, rows = std::min<int64_t>(tile_rows_, fine_rows() - first);
  float* const buffer = ThreadScratch(2 * depth_ + CeilDiv(rows * depth_, sizeof(float)));
  float* const rest = buffer + depth_;
  auto* const bytes = reinterpret_cast<int8_t*>(rest + depth_);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = fine_rows_[static_cast<size_t>(first + r)];
    const float* const x = source(row, buffer);
    SubtractQuantized(x, depth_, group_, At(coarse_, row), rest);
    if (fineness == Int8Fineness::kWhereNeeded) KeepCoarsestGroups(x, groups, group_, rest, kept);
    Int8Row to = At(fine_, first + r);
    to.a = bytes + r * depth_;
    QuantizeRow(rest, depth_, group_, kInt8Limits, to);
  }
  InterleaveRows(bytes, rows, depth_, At(fine_, first));
}

}  // namespace qwen_image

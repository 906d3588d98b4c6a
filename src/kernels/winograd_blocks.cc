#include "kernels/winograd_blocks.h"

#include <algorithm>

#include "kernels/tasks.h"

namespace qwen_image {
namespace {

// Tiles of a task. The weights are read once for each of them, from L3 or memory: fewer tiles, more reading.
// More tiles, and what is between the steps leaves L2. Nearly square, since neighbouring blocks norm the
// pixels at their border twice.
constexpr int64_t kBlockRows = 6, kBlockCols = 8;
constexpr int64_t kWantedTasks = 16, kTasksPerThread = 4, kLeastChannels = 96;

// [0, count) in parts of at most `limit`, which differ by one at most.
struct Parts {
  Parts(int64_t all, int64_t limit) : items(all), count(CeilDiv(all, limit)) {}
  int64_t begin(int64_t part) const { return part * items / count; }
  int64_t size(int64_t part) const { return begin(part + 1) - begin(part); }

  int64_t items, count;
};

struct Grid {
  Parts rows, cols, channels;  // in tiles, tiles, and panels of kLeastChannels output channels

  int64_t count() const { return rows.count * cols.count * channels.count; }
};

Grid GridFor(int64_t rows, int64_t cols, int64_t channels, int threads) {
  const int64_t panels = CeilDiv(channels, kLeastChannels), needed = kTasksPerThread * threads;
  Grid grid{{rows, kBlockRows}, {cols, kBlockCols}, {panels, panels}};
  // Few blocks of many channels: tasks share the pixels, too, which costs a second transform of them.
  const int64_t parts = CeilDiv(std::max(kWantedTasks, needed), grid.count());
  grid.channels = Parts(panels, CeilDiv(panels, parts));
  // Still too few for many threads: smaller blocks, for which the weights are read more often.
  if (grid.count() < needed) grid.cols = Parts(cols, kBlockCols / 2);
  if (grid.count() < needed) grid.rows = Parts(rows, kBlockRows / 2);
  return grid;
}

// Splits the last blocks, if there are fewer of them than threads, into rows of tiles.
void SplitLast(std::vector<TileBlock>& blocks, int threads) {
  const auto count = static_cast<int64_t>(blocks.size());
  if (count < threads || count >= kTasksPerThread * 2 * threads) return;  // too few, or enough anyway
  const std::vector<TileBlock> last(blocks.end() - count % threads, blocks.end());
  blocks.resize(static_cast<size_t>(count - count % threads));
  for (const TileBlock& block : last) {
    for (int64_t row = 0; row < block.rows; ++row) {
      blocks.push_back({block.top + row, block.left, 1, block.cols, block.out_begin, block.out_end});
    }
  }
}

}  // namespace

std::vector<TileBlock> CutConvolution(const Conv3x3Shape& shape, int64_t row_begin, int64_t row_end,
                                      int threads) {
  const int64_t top = row_begin / kConvTile, rows = CeilDiv(row_end, kConvTile) - top;
  const Grid grid = GridFor(rows, CeilDiv(shape.out_width(), kConvTile), shape.out_channels, threads);
  std::vector<TileBlock> blocks;
  for (int64_t channel = 0; channel < grid.channels.count; ++channel) {
    const int64_t first = grid.channels.begin(channel), end = grid.channels.begin(channel + 1);
    for (int64_t row = 0; row < grid.rows.count; ++row) {
      for (int64_t col = 0; col < grid.cols.count; ++col) {
        blocks.push_back({top + grid.rows.begin(row), grid.cols.begin(col), grid.rows.size(row),
                          grid.cols.size(col), first * kLeastChannels,
                          std::min(shape.out_channels, end * kLeastChannels)});
      }
    }
  }
  // The small ones last: they fill what the others leave.
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const TileBlock& a, const TileBlock& b) { return a.count() > b.count(); });
  SplitLast(blocks, threads);
  return blocks;
}

}  // namespace qwen_image

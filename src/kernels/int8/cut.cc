#include "kernels/int8/cut.h"

#include <algorithm>

#include "kernels/int8/weights.h"
#include "kernels/tasks.h"

namespace qwen_image {
namespace {

// Of a strip's panels. Each tile of rows is read from L1 for all of them but the first.
constexpr int64_t kStripBytes = 192 * 1024;
// Panels are unpacked once for each task, so a task takes many rows: all of them if that gives every thread
// enough tasks to end together with the others.
constexpr int64_t kTasksPerThread = 24;
constexpr int64_t kLeastRows = 96;
// Between blocks of the depth the sums of a task's rows are kept, in L2 with the panels.
constexpr int64_t kMostRows = 1152, kMostRowsBetweenBlocks = 576;

int64_t PartsOf(const Int8Size& product, int64_t all_strips, int threads) {
  const int64_t wanted = CeilDiv(kTasksPerThread * threads, all_strips);
  return std::clamp(wanted, CeilDiv(product.rows, product.one_block ? kMostRows : kMostRowsBetweenBlocks),
                    CeilDiv(product.rows, kLeastRows));
}

}  // namespace

// All of about the same length.
int64_t Int8DepthBlock(const WeightMatrix& w) {
  const int planes = Int8PlanesOf(w, ChosenInt8Kernel());
  const int64_t most = std::min(kInt8MaxDepth, kStripBytes / (kInt8StripCols * planes));
  const int64_t blocks = CeilDiv(w.cols, most);
  return RoundUp(CeilDiv(w.cols, blocks), Int8DepthUnit(w));
}

Int8Size Int8SizeOf(int64_t rows, const WeightMatrix& w) {
  return {rows, ChosenInt8Kernel().tile_rows, w.rows, Int8DepthBlock(w) >= w.cols};
}

std::vector<Int8Cut> CutInt8Products(std::span<const Int8Size> products, int threads) {
  int64_t all_strips = 0;
  for (const Int8Size& product : products) all_strips += CeilDiv(product.cols, kInt8StripCols);
  std::vector<Int8Cut> tasks;
  for (size_t i = 0; i < products.size(); ++i) {
    const Int8Size& product = products[i];
    const int64_t tiles = product.tiles();
    if (tiles == 0) continue;
    const int64_t part_tiles = CeilDiv(tiles, PartsOf(product, all_strips, threads));
    for (int64_t col = 0; col < product.cols; col += kInt8StripCols) {
      for (int64_t tile = 0; tile < tiles; tile += part_tiles) {
        tasks.push_back(
            {i, tile, std::min(part_tiles, tiles - tile), col, std::min(kInt8StripCols, product.cols - col)});
      }
    }
  }
  return tasks;
}

int64_t Int8AttentionTaskQueries(int64_t queries, int64_t heads, int threads) {
  // A task reads all keys and values of its head. Sums of 72 KB at head_dim 128 leave L2 to these.
  constexpr int64_t kMostQueries = 144, kLeastQueries = 48;
  const int64_t parts = CeilDiv(kTasksPerThread * threads, heads);
  const int64_t even = CeilDiv(queries, std::max(parts, CeilDiv(queries, kMostQueries)));
  return RoundUp(std::max(even, kLeastQueries), ChosenInt8Kernel().tile_rows);
}

}  // namespace qwen_image

// Whether every thread of a large machine gets its share. Nothing is computed: the tasks are those that the
// kernels would run, at the published model's sizes, each with what it costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/int8/cut.h"
#include "kernels/mlx_groups.h"
#include "kernels/tasks.h"
#include "kernels/winograd_blocks.h"

namespace qwen_image {
namespace {

constexpr int64_t kWidth = 3072, kHidden = 4 * kWidth, kTextTokens = 23;

// Roughly what a core does in a microsecond: multiplications of 8-bit integers and of floats, bytes.
constexpr double kInt8Rate = 200e3, kFloatRate = 50e3, kByteRate = 10e3;

// The longest share may be a tenth above the mean. An operation is tiny where a tenth of its share is less
// than it costs to wake a thread (20 to 80 µs, see core/threads.cc): there as much may be lost as that.
constexpr double kMostOfMean = 1.1, kWaking = 40;

struct Operation {
  std::string name;
  std::vector<double> tasks;  // microseconds of one core, in the order in which they are handed out
};

// The time of the thread that works longest. A thread that is free takes the next task.
double LargestShare(const std::vector<double>& tasks, int threads) {
  std::priority_queue<double, std::vector<double>, std::greater<>> ends(
      std::greater<>(), std::vector<double>(static_cast<size_t>(threads), 0.0));
  double last = 0;
  for (double task : tasks) {
    const double end = ends.top() + task;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return last;
}

// Kernels that go through rows: norms, rotations, quantization.
Operation OfRows(const std::string& name, int64_t rows, int64_t bytes_per_row, int threads) {
  const Pieces pieces(rows, bytes_per_row, threads);
  Operation operation{name, {}};
  for (int64_t i = 0; i < pieces.count(); ++i) {
    const auto bytes = static_cast<double>((pieces.end(i) - pieces.begin(i)) * bytes_per_row);
    operation.tasks.push_back(bytes / kByteRate);
  }
  return operation;
}

struct Layer {
  int64_t depth, cols;
};

WeightMatrix FourBits(const Layer& layer) {
  return {nullptr, DType::kF32, layer.cols, layer.depth, MakeMlxCoding({.bits = 4, .group_size = 64})};
}

// The products of both streams run together.
Operation OfInt8(const std::string& name, int64_t tokens, const std::vector<Layer>& layers, int threads) {
  std::vector<Int8Size> sizes;
  std::vector<int64_t> depths;
  for (const int64_t rows : {tokens, kTextTokens}) {
    for (const Layer& layer : layers) {
      sizes.push_back(Int8SizeOf(rows, FourBits(layer)));
      depths.push_back(layer.depth);
    }
  }
  // To unpack weights costs as much as to multiply them with so many rows: a fiftieth at 1024.
  constexpr int64_t kUnpackRows = 20;
  Operation operation{name, {}};
  for (const Int8Cut& cut : CutInt8Products(sizes, threads)) {
    const int64_t rows = cut.tiles * sizes[cut.product].tile_rows + kUnpackRows;
    operation.tasks.push_back(static_cast<double>(rows * cut.cols * depths[cut.product]) / kInt8Rate);
  }
  return operation;
}

// All heads, each cut into the same pieces of its queries. The keys and values are in 8 bits.
Operation OfInt8Attention(int64_t tokens, int threads) {
  constexpr int64_t kHeads = 24, kHeadDim = kWidth / kHeads;
  // To quantize a query and to write its result costs as much as to look at so many keys.
  constexpr int64_t kQueryKeys = 40;
  const int64_t all = tokens + kTextTokens, most = Int8AttentionTaskQueries(all, kHeads, threads);
  Operation operation{"attention in 8 bits", {}};
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t first = 0; first < all; first += most) {
      const int64_t queries = std::min(most, all - first);
      operation.tasks.push_back(static_cast<double>(2 * queries * (all + kQueryKeys) * kHeadDim) / kInt8Rate);
    }
  }
  return operation;
}

// Exact products, a part of the rows after the other: each is a job of its own.
std::vector<Operation> OfFloats(const std::string& name, int64_t tokens, const Layer& layer, int threads) {
  std::vector<Operation> operations;
  for (int64_t first = 0; first < tokens; first += RowsAtOnce(tokens)) {
    const int64_t rows = std::min(RowsAtOnce(tokens), tokens - first);
    Operation operation{name + " of " + std::to_string(rows), {}};
    for (const GemmTask& task : CutProduct(first, rows, layer.cols, threads)) {
      const int64_t outputs = (task.row_end - task.row_begin) * (task.col_end - task.col_begin);
      operation.tasks.push_back(static_cast<double>(outputs * layer.depth) / kFloatRate);
    }
    operations.push_back(operation);
  }
  return operations;
}

// The VAE's convolutions at the four sizes of its pictures, by Winograd's method: a quarter of the
// multiplications.
std::vector<Operation> ConvolutionsOf(int64_t side, int threads) {
  struct Level {
    int64_t shrink, channels;
  };
  std::vector<Operation> operations;
  for (const Level& level : {Level{8, 384}, Level{4, 384}, Level{2, 192}, Level{1, 96}}) {
    const int64_t size = side / level.shrink;
    const Conv3x3Shape shape{level.channels, level.channels, size, size};
    // Large pictures are computed in bands of rows (see ops/cpu_pictures.cc).
    const int64_t band = std::max<int64_t>(1, (8 << 20) / (size * level.channels) / 24) * 24;
    const int64_t rows = std::min(size, band);
    Operation operation{"convolution at " + std::to_string(size) + ", " + std::to_string(rows) + " rows", {}};
    for (const TileBlock& block : CutConvolution(shape, 0, rows, threads)) {
      const int64_t outputs = block.count() * kConvTile * kConvTile * (block.out_end - block.out_begin);
      operation.tasks.push_back(static_cast<double>(outputs * level.channels * 9 / 4) / kFloatRate);
    }
    operations.push_back(operation);
  }
  return operations;
}

// A block of the transformer, and the VAE.
std::vector<Operation> OperationsOf(int64_t side, int threads) {
  const int64_t tokens = (side / 16) * (side / 16);
  const Layer square = {kWidth, kWidth}, up = {kWidth, kHidden}, down = {kHidden, kWidth};
  constexpr int64_t kFloat = sizeof(float);
  std::vector<Operation> operations = {
      OfRows("norm, modulation, quantization", tokens, 2 * kWidth * kFloat, threads),
      OfInt8("q, k, v", tokens, {square, square, square}, threads),
      OfRows("norm and rotation", tokens, kWidth * kFloat, threads),
      OfInt8Attention(tokens, threads),
      OfInt8("attention's output", tokens, {square}, threads),
      OfInt8("MLP up", tokens, {up}, threads),
      OfRows("quantization of the MLP's middle", tokens, 2 * kHidden * kFloat, threads),
      OfInt8("MLP down", tokens, {down}, threads),
  };
  for (const Layer& layer : {square, up, down}) {
    const std::string name = "fp32 " + std::to_string(layer.depth) + "x" + std::to_string(layer.cols);
    for (const Operation& operation : OfFloats(name, tokens, layer, threads)) operations.push_back(operation);
  }
  for (const Operation& operation : ConvolutionsOf(side, threads)) operations.push_back(operation);
  return operations;
}

TEST(Balance, EveryThreadHasItsShare) {
  for (const int64_t side : {512, 1024, 1328}) {
    for (const int threads : {8, 32, 96}) {
      for (const Operation& operation : OperationsOf(side, threads)) {
        double sum = 0;
        for (double task : operation.tasks) sum += task;
        const double mean = sum / threads, share = LargestShare(operation.tasks, threads);
        std::printf("%4d %2d threads  %-34s %5zu tasks, mean share %8.0f us, largest %.3f x%s\n",
                    static_cast<int>(side), threads, operation.name.c_str(), operation.tasks.size(), mean,
                    share / mean, mean * (kMostOfMean - 1) < kWaking ? " (tiny)" : "");
        EXPECT_LE(share, std::max(kMostOfMean * mean, mean + kWaking))
            << operation.name << " at " << side << "x" << side << " on " << threads << " threads";
      }
    }
  }
}

TEST(Balance, PiecesCoverEveryItemOnce) {
  for (const int threads : {1, 2, 7, 96}) {
    for (const int64_t count : {1, 2, 23, 96, 97, 1047, 4119}) {
      for (const int64_t bytes : {1, 64, 12288, 1 << 20}) {
        const Pieces pieces(count, bytes, threads);
        int64_t next = 0;
        for (int64_t i = 0; i < pieces.count(); ++i) {
          EXPECT_EQ(pieces.begin(i), next);
          EXPECT_GT(pieces.end(i), pieces.begin(i));
          next = pieces.end(i);
        }
        EXPECT_EQ(next, count) << threads << " threads, items of " << bytes << " bytes";
      }
    }
  }
}

// Counts how often each element of a matrix is computed.
class Coverage {
 public:
  Coverage(int64_t rows, int64_t cols) : cols_(cols), times_(static_cast<size_t>(rows * cols)) {}

  void Add(int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t col = col_begin; col < col_end; ++col) ++times_.at(static_cast<size_t>(row * cols_ + col));
    }
  }
  bool IsOnceEach() const {
    return std::all_of(times_.begin(), times_.end(), [](int times) { return times == 1; });
  }

 private:
  int64_t cols_;
  std::vector<int> times_;
};

// Also on machines with more processors than the tests run on.
constexpr int kThreadCounts[] = {1, 2, 5, 8, 32, 96, 300};

TEST(Balance, ProductsAreComputedOnce) {
  for (const int threads : kThreadCounts) {
    for (const int64_t rows : {1, 23, 145, 1047, 1152}) {
      for (const int64_t cols : {1, 64, 100, 3072}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " on " + std::to_string(threads));
        Coverage floats(rows, cols), integers(rows, cols);
        for (const GemmTask& task : CutProduct(0, rows, cols, threads))
          floats.Add(task.row_begin, task.row_end, task.col_begin, task.col_end);
        EXPECT_TRUE(floats.IsOnceEach());
        const Int8Size size = Int8SizeOf(rows, FourBits({64, cols}));
        for (const Int8Cut& cut : CutInt8Products({&size, 1}, threads)) {
          const int64_t first = cut.first_tile * size.tile_rows;
          integers.Add(first, std::min(rows, first + cut.tiles * size.tile_rows), cut.col,
                       cut.col + cut.cols);
        }
        EXPECT_TRUE(integers.IsOnceEach());
      }
    }
  }
}

TEST(Balance, ConvolutionsAreComputedOnce) {
  for (const int threads : kThreadCounts) {
    for (const int64_t side : {4, 28, 64, 166}) {
      for (const int64_t channels : {3, 96, 200, 384}) {
        SCOPED_TRACE(std::to_string(side) + ", " + std::to_string(channels) + " channels on " +
                     std::to_string(threads));
        const int64_t tiles = (side + kConvTile - 1) / kConvTile;
        Coverage outputs(tiles * tiles, channels);
        for (const TileBlock& block : CutConvolution({8, channels, side, side}, 0, side, threads)) {
          for (int64_t row = block.top; row < block.top + block.rows; ++row) {
            const int64_t first = row * tiles + block.left;
            outputs.Add(first, first + block.cols, block.out_begin, block.out_end);
          }
        }
        EXPECT_TRUE(outputs.IsOnceEach());
      }
    }
  }
}

}  // namespace
}  // namespace qwen_image

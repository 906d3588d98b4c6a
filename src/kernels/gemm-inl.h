// The blocked matrix product, compiled once per instruction set. Operands are packed into small buffers so
// that the register tile reads both of them straight through:
//   a: [rows][kDepthBlock]  plain rows, at a stride known to the compiler
//   b: [depth][kTileCols]   a panel of kTileCols weight rows, transposed and converted to float
// No include guard of the usual kind: see Highway's foreach_target.h.
#if defined(QWEN_IMAGE_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_GEMM_INL_H_
#undef QWEN_IMAGE_KERNELS_GEMM_INL_H_
#else
#define QWEN_IMAGE_KERNELS_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// The tile: kTileRows × 2 vectors of sums, 2 vectors of b and one broadcast value of a must fit the registers
// (16 on AVX2 and before, 32 on AVX-512 and NEON).
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = 6;
#endif
static_assert(kRowBlock % kTileRows == 0 && kStripCols % kTileCols == 0 && kWidestTile % kTileCols == 0);

// Sums a[r][0…depth) · b[0…depth)[c] in that order for a tile of kRows × kTileCols, then hands every vector
// to store(row, column, sums). The sums live in registers: check the assembly for spills after any change
// here.
template <int kRows, class Store>
HWY_INLINE void Tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                     const Store& store) {
  const F32 d;
  VF32 sum0[kRows];
  VF32 sum1[kRows];
  HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    const VF32 b0 = hn::LoadU(d, b);
    const VF32 b1 = hn::LoadU(d, b + kLanes);
    HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) {
      const VF32 x = hn::Set(d, a[r * kDepthBlock]);
      sum0[r] = hn::MulAdd(x, b0, sum0[r]);
      sum1[r] = hn::MulAdd(x, b1, sum1[r]);
    }
    ++a;
    b += kTileCols;
  }
  HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) {
    store(r, int64_t{0}, sum0[r]);
    store(r, kLanes, sum1[r]);
  }
}

// The same for a number of rows known at run time, 1…kTileRows.
template <int kRows = kTileRows, class Store>
HWY_INLINE void TileOfRows(int64_t rows, const float* a, const float* b, int64_t depth, const Store& store) {
  if constexpr (kRows == 1) {
    Tile<1>(a, b, depth, store);
  } else if (rows == kRows) {
    Tile<kRows>(a, b, depth, store);
  } else {
    TileOfRows<kRows - 1>(rows, a, b, depth, store);
  }
}

// Fetches memory that will be read soon, a few lines with every tile, so that the fetches cost no waiting.
class FetchAhead {
 public:
  FetchAhead() = default;  // nothing
  FetchAhead(const float* data, int64_t floats, int64_t tiles)
      : next_(data), end_(data + floats), step_(RoundUp(CeilDiv(floats, tiles), kLine)) {}
  HWY_INLINE void WithTile() {
    for (const float* end = std::min(end_, next_ + step_); next_ < end; next_ += kLine) PrefetchToL2(next_);
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);
  const float* next_ = nullptr;
  const float* end_ = nullptr;
  int64_t step_ = 0;  // floats a tile
};

// y[rows, cols] (+)= a · b for one tile; the first depth block starts from the bias instead of y.
HWY_INLINE void TileToOutput(int64_t rows, int64_t cols, const float* a, const float* b, int64_t depth,
                             const float* first_bias /*[kTileCols] or null*/, float* y, int64_t y_stride) {
  const F32 d;
  // The tile takes longer than a fetch from L3: have y at hand when the sums are ready.
  for (int64_t r = 0; r < rows; ++r) {
    hwy::Prefetch(y + r * y_stride);
    hwy::Prefetch(y + r * y_stride + cols - 1);
  }
  if (cols < kTileCols) {
    HWY_ALIGN float tile[kTileRows * kTileCols];
    TileOfRows(rows, a, b, depth,
               [&](int r, int64_t c, VF32 sum) HWY_ATTR { hn::Store(sum, d, tile + r * kTileCols + c); });
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const float before = first_bias ? first_bias[c] : y[r * y_stride + c];
        y[r * y_stride + c] = before + tile[r * kTileCols + c];
      }
    }
  } else if (first_bias) {
    TileOfRows(rows, a, b, depth, [&](int r, int64_t c, VF32 sum) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, first_bias + c), sum), d, y + r * y_stride + c);
    });
  } else {
    TileOfRows(rows, a, b, depth, [&](int r, int64_t c, VF32 sum) HWY_ATTR {
      float* to = y + r * y_stride + c;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
    });
  }
}

enum class GemmStart { kBias, kOutput };  // what the products are added to

// One task of y = a · wᵀ + bias, or of y += a · wᵀ. `rows_of` is either PackedRows, or a function
// (row, rows, k, depth, to) that writes rows of `a` at stride kDepthBlock.
template <class RowsOf>
class GemmRun {
 public:
  GemmRun(const GemmTask& task, const WeightMatrix& w, const float* bias, const RowsOf& rows_of, View y,
          GemmStart start = GemmStart::kBias)
      : task_(task), w_(w), rows_of_(rows_of), y_(y), start_(start) {
    a_ = ThreadScratch((kRowBlock + kStripCols + kTileCols) * kDepthBlock + kStripCols);
    b_ = a_ + kRowBlock * kDepthBlock;
    decoded_ = b_ + kStripCols * kDepthBlock;
    bias_ = decoded_ + kTileCols * kDepthBlock;
    for (int64_t c = task.col_begin; c < task.col_end; ++c) bias_[c - task.col_begin] = bias ? bias[c] : 0.0f;
  }

  void Run() {
    const int64_t rows = task_.row_end - task_.row_begin;
    if (rows <= kRowBlock) {
      // Few rows: the weights are used once, and several depth blocks of `a` fit. So each panel's weights are
      // read a longer way along their rows, as memory likes it, and the panel is thrown away.
      const int64_t batch = kRowBlock / RoundUp(rows, kTileRows) * kDepthBlock;
      for (int64_t k = 0; k == 0 || k < w_.cols; k += batch) {
        MultiplyRows(task_.row_begin, rows, k, std::min(w_.cols, k + batch), true, false);
      }
    } else {
      for (int64_t k = 0; k == 0 || k < w_.cols; k += kDepthBlock) {
        for (int64_t row = task_.row_begin; row < task_.row_end; row += kRowBlock) {
          MultiplyRows(row, std::min(kRowBlock, task_.row_end - row), k, std::min(w_.cols, k + kDepthBlock),
                       row == task_.row_begin, true);
        }
      }
    }
  }

 private:
  // y[row…, task's columns] += a[row…, k_begin…k_end) · wᵀ
  void MultiplyRows(int64_t row, int64_t rows, int64_t k_begin, int64_t k_end, bool pack_panels,
                    bool keep_panels) {
    PackRows(row, rows, k_begin, k_end);
    const int64_t tiles = CeilDiv(rows, kTileRows);
    FetchAhead next_rows = keep_panels ? NextRows(row, rows, k_begin, tiles) : FetchAhead();
    for (int64_t col = task_.col_begin; col < task_.col_end; col += kTileCols) {
      const int64_t cols = std::min(kTileCols, task_.col_end - col);
      float* const panel = keep_panels ? b_ + (col - task_.col_begin) * kDepthBlock : b_;
      for (int64_t k = k_begin; k == k_begin || k < k_end; k += kDepthBlock) {
        const int64_t depth = std::min(kDepthBlock, k_end - k);
        // A panel is packed just before its first use, so it is still in L1.
        const int64_t next = k + kDepthBlock < k_end ? kDepthBlock : kTileCols * w_.cols - (k - k_begin);
        if (pack_panels) PackWeights(col, cols, k, depth, next, panel);
        const float* const bias =
            k == 0 && start_ == GemmStart::kBias ? bias_ + (col - task_.col_begin) : nullptr;
        const float* const a = RowsAt(row, rows, k, k_begin);
        FetchAhead next_panel =
            pack_panels ? FetchAhead()
                        : FetchAhead(panel + kTileCols * kDepthBlock, kTileCols * kDepthBlock, tiles);
        for (int64_t r = 0; r < rows; r += kTileRows) {
          next_rows.WithTile();
          next_panel.WithTile();
          TileToOutput(std::min<int64_t>(kTileRows, rows - r), cols, a + r * kDepthBlock, panel, depth, bias,
                       y_.row(row + r) + col, y_.stride);
        }
      }
    }
  }

  void PackRows([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t rows, int64_t k_begin, int64_t k_end) {
    if constexpr (!std::is_same_v<RowsOf, PackedRows>) {
      for (int64_t k = k_begin; k < k_end; k += kDepthBlock) {
        rows_of_(row, rows, k, std::min(kDepthBlock, k_end - k), a_ + (k - k_begin) * rows);
      }
    }
  }

  const float* RowsAt(int64_t row, [[maybe_unused]] int64_t rows, int64_t k,
                      [[maybe_unused]] int64_t k_begin) const {
    if constexpr (std::is_same_v<RowsOf, PackedRows>) {
      return rows_of_.At(row, k);
    } else {
      return a_ + (k - k_begin) * rows;
    }
  }

  // What the next call of MultiplyRows will read from memory.
  FetchAhead NextRows([[maybe_unused]] int64_t row, [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t k,
                      [[maybe_unused]] int64_t tiles) const {
    if constexpr (std::is_same_v<RowsOf, PackedRows>) {
      const bool last = row + rows >= task_.row_end;
      const int64_t next_row = last ? task_.row_begin : row + rows;
      const int64_t next_k = last ? k + kDepthBlock : k;
      if (next_k < w_.cols) {
        const int64_t panels = CeilDiv(task_.col_end - task_.col_begin, kTileCols);
        return FetchAhead(rows_of_.At(next_row, next_k),
                          std::min(kRowBlock, task_.row_end - next_row) * kDepthBlock, tiles * panels);
      }
    }
    return FetchAhead();
  }

  void PackWeights(int64_t col, int64_t cols, int64_t k, int64_t depth, int64_t next, float* panel) {
    if (w_.coding) {
      for (int64_t i = 0; i < cols; ++i) DecodeRow(w_, col + i, k, depth, decoded_ + i * kDepthBlock);
      return PackPanel(decoded_, DType::kF32, kDepthBlock, cols, depth, 0, panel);
    }
    const int64_t size = static_cast<int64_t>(SizeOf(w_.dtype));
    const auto* data = static_cast<const uint8_t*>(w_.data) + (col * w_.cols + k) * size;
    PackPanel(data, w_.dtype, w_.cols, cols, depth, next * size, panel);
  }

  const GemmTask task_;
  const WeightMatrix& w_;
  const RowsOf& rows_of_;
  const View y_;  // [rows, w.rows]
  const GemmStart start_;
  float* a_;        // [depth blocks][rows][kDepthBlock]
  float* b_;        // panels
  float* decoded_;  // [kTileCols][kDepthBlock]: rows of encoded weights, before they become a panel
  float* bias_;     // [task's columns], zeros if there is none
};

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

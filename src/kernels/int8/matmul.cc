#include "kernels/int8/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/int8/cut.h"
#include "kernels/int8/weights.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The end of a tile: bias, activation, gate and residual, for sums [rows][kInt8PanelCols] of which `cols`
// columns are wanted. The same functions as in elementwise.cc, so that a fused product has the same bits as
// one whose steps are taken one by one.
void FinishTile(const Int8Product& product, const float* sums, int64_t row, int64_t rows, int64_t col,
                int64_t cols) {
  const hn::CappedTag<float, kInt8PanelCols> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  // For the last columns: the memory behind them belongs to another task, or is not there.
  HWY_ALIGN float buffer[kLanes] = {};
  for (int64_t r = 0; r < rows; ++r) {
    float* const y = product.y.row(row + r) + col;
    const float* const gate = row + r < product.late_row ? product.gate : product.late_gate;
    for (int64_t c = 0; c < cols; c += kLanes) {
      const auto count = static_cast<size_t>(std::min(kLanes, cols - c));
      const bool whole = count == kLanes;
      const auto load = [&](const float* from) HWY_ATTR {
        if (whole) return hn::LoadU(d, from);
        std::memcpy(buffer, from, count * sizeof(float));
        return hn::Load(d, buffer);
      };
      auto v = hn::Load(d, sums + r * kInt8PanelCols + c);
      if (product.bias) v = hn::Add(load(product.bias + col + c), v);
      if (product.gelu) v = GeluTanhOf(d, v);
      if (gate) {
        v = hn::MulAdd(load(gate + col + c), v, load(y + c));
      } else if (product.add) {
        v = hn::Add(load(y + c), v);
      }
      if (whole) {
        hn::StoreU(v, d, y + c);
      } else {
        hn::Store(v, d, buffer);
        std::memcpy(y + c, buffer, count * sizeof(float));
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {
namespace {

HWY_EXPORT(FinishTile);

struct Task {
  const Int8Product* product;
  int64_t first_tile, tiles;
  int64_t col, cols;
};

std::vector<Task> CutIntoTasks(std::span<const Int8Product> products, int threads) {
  std::vector<Int8Size> sizes;
  for (const Int8Product& product : products) sizes.push_back(Int8SizeOf(product.x->rows(), *product.w));
  std::vector<Task> tasks;
  for (const Int8Cut& cut : CutInt8Products(sizes, threads))
    tasks.push_back({&products[cut.product], cut.first_tile, cut.tiles, cut.col, cut.cols});
  return tasks;
}

// Brings packed weights into the cache while others are multiplied: some rows after every tile, since memory
// takes only so many requests at once.
struct StripFetch {
  const WeightMatrix* w = nullptr;
  int64_t row = 0, end = 0;  // of w
  int64_t first = 0, depth = 0;

  void Rows(int64_t count) {
    for (const int64_t stop = std::min(end, row + count); row < stop; ++row)
      PrefetchInt8Row(*w, row, first, depth);
  }
};

class TaskRun {
 public:
  // `next`, which may be null, is the task that this thread will most likely run after this one.
  TaskRun(const Task& task, const Task* next)
      : task_(task),
        next_(next),
        product_(*task.product),
        x_(*product_.x),
        w_(*product_.w),
        kernel_(ChosenInt8Kernel()),
        planes_(Int8PlanesOf(w_, kernel_)),
        block_(Int8DepthBlock(w_)) {
    const int64_t groups = block_ / x_.group();
    panel_bytes_ = block_ * kInt8PanelCols;
    const int64_t q_floats = planes_ * panel_bytes_ / 4, scale_floats = groups * kInt8PanelCols;
    const int64_t panel_floats = q_floats + 2 * scale_floats;
    tile_floats_ = x_.tile_rows() * kInt8PanelCols;
    const int64_t first_fine = x_.FineRowsBefore(task.first_tile),
                  end_fine = x_.FineRowsBefore(task.first_tile + task.tiles);
    first_fine_tile_ = first_fine / x_.tile_rows();
    fine_tiles_ = end_fine > first_fine ? CeilDiv(end_fine, x_.tile_rows()) - first_fine_tile_ : 0;
    const int64_t kept_tiles = one_block() ? 1 : task.tiles;
    float* free = ThreadScratch(kInt8StripPanels * panel_floats + panel_bytes_ / 4 +
                                (kept_tiles + fine_tiles_) * strip_floats());
    for (Int8PanelBuffer& panel : panels_) {
      panel = {reinterpret_cast<uint8_t*>(free), free + q_floats, free + q_floats + scale_floats,
               panel_bytes_, x_.group()};
      free += panel_floats;
    }
    unpacked_ = reinterpret_cast<uint8_t*>(free);
    free += panel_bytes_ / 4;
    fine_sums_ = free;
    sums_ = free + fine_tiles_ * strip_floats();
  }

  void Run() {
    for (int64_t first = 0; first < w_.cols; first += block_) {
      MultiplyBlock(first, std::min(block_, w_.cols - first));
    }
  }

 private:
  void MultiplyBlock(int64_t first, int64_t depth) {
    for (int64_t p = 0; p < panels(); ++p) {
      UnpackInt8Panel(w_, task_.col + p * kInt8PanelCols, PanelCols(p), first, depth, kernel_, unpacked_,
                      panels_[p]);
    }
    FetchNext(first + block_);
    for (int64_t t = 0; t < fine_tiles_; ++t) MultiplyFineTile(t, first, depth);
    for (int64_t t = 0; t < task_.tiles; ++t) {
      fetch_.Rows(CeilDiv(kInt8StripCols, task_.tiles));
      MultiplyTile(t, first, depth);
    }
  }

  // What this thread will most likely unpack next.
  void FetchNext(int64_t first) {
    if (first < w_.cols) {
      fetch_ = {&w_, task_.col, task_.col + task_.cols, first, std::min(block_, w_.cols - first)};
    } else if (next_) {
      const WeightMatrix& w = *next_->product->w;
      const int64_t block = Int8DepthBlock(w);
      fetch_ = {&w, next_->col, next_->col + next_->cols, 0, std::min(block, w.cols)};
    }
  }

  // Its first and last tile may hold rows of other tasks, which are computed in vain.
  void MultiplyFineTile(int64_t t, int64_t first, int64_t depth) {
    const int64_t tile = first_fine_tile_ + t;
    const int64_t rows = std::min<int64_t>(x_.tile_rows(), x_.fine_rows() - tile * x_.tile_rows());
    float* const sums = FineSums(t, 0);
    if (first == 0) std::fill_n(sums, panels() * tile_floats_, 0.0f);
    const int64_t begin = first / x_.group(), end = begin + depth / x_.group();
    for (int64_t group = begin, stop = begin; group < end; group = stop + 1) {
      for (stop = group; stop < end && x_.HasFine(tile, stop);) ++stop;
      if (stop > group)
        Multiply(x_.Fine(tile, group), {group - begin, stop - group, true}, rows, sums, nullptr);
    }
  }

  void MultiplyTile(int64_t t, int64_t first, int64_t depth) {
    const int64_t tile = task_.first_tile + t, row = tile * x_.tile_rows();
    const int64_t rows = std::min<int64_t>(x_.tile_rows(), x_.rows() - row);
    const int64_t group = first / x_.group();
    float* const strip = one_block() ? sums_ : sums_ + t * strip_floats();
    const bool last = first + depth >= w_.cols;
    if (last) FetchOutput(row, rows);
    const int8_t* const next = t + 1 < task_.tiles ? x_.Coarse(tile + 1, group).a : nullptr;
    Multiply(x_.Coarse(tile, group), {0, depth / x_.group(), first > 0}, rows, strip, next);
    if (!last) return;
    for (int64_t p = 0; p < panels(); ++p) {
      float* const sums = strip + p * tile_floats_;
      for (int64_t r = 0; r < rows && fine_tiles_ > 0; ++r) AddFine(row + r, p, sums + r * kInt8PanelCols);
      HWY_DYNAMIC_DISPATCH(FinishTile)
      (product_, sums, row, rows, task_.col + p * kInt8PanelCols, PanelCols(p));
    }
  }

  // Rows lie pages apart: without this every one of them would be waited for when the tile is finished.
  void FetchOutput(int64_t row, int64_t rows) const {
    for (int64_t r = row; r < row + rows; ++r) {
      for (int64_t p = 0; p < panels(); ++p)
        __builtin_prefetch(product_.y.row(r) + task_.col + p * kInt8PanelCols, 1);
    }
  }

  // Groups of the block whose weights are unpacked; `add`: to what is in the sums.
  struct Groups {
    int64_t first, count;
    bool add;
  };

  void Multiply(const Int8Rows& x, const Groups& groups, int64_t rows, float* sums, const int8_t* next) {
    const int64_t scales = groups.first * kInt8PanelCols;
    Int8Panel w[kInt8StripPanels];
    for (int64_t p = 0; p < panels(); ++p) {
      w[p] = panels_[p].panel();
      w[p].q += scales * x_.group();
      w[p].scales += scales;
      w[p].biases += scales;
    }
    kernel_.multiply({.x = x,
                      .w = w,
                      .panels = static_cast<int>(panels()),
                      .rows = static_cast<int>(rows),
                      .groups = groups.count,
                      .group = x_.group(),
                      .planes = planes_,
                      .add = groups.add,
                      .sums = sums,
                      .next = next});
  }

  void AddFine(int64_t row, int64_t p, float* sums) const {
    const int64_t fine = x_.FineRow(row);
    if (fine < 0) return;
    const float* const from =
        FineSums(fine / x_.tile_rows() - first_fine_tile_, p) + fine % x_.tile_rows() * kInt8PanelCols;
    for (int c = 0; c < kInt8PanelCols; ++c) sums[c] += from[c];
  }

  float* FineSums(int64_t t, int64_t p) const {
    return fine_sums_ + (t * kInt8StripPanels + p) * tile_floats_;
  }
  int64_t panels() const { return CeilDiv(task_.cols, kInt8PanelCols); }
  int64_t strip_floats() const { return kInt8StripPanels * tile_floats_; }
  bool one_block() const { return block_ >= w_.cols; }

  int64_t PanelCols(int64_t p) const {
    return std::min<int64_t>(kInt8PanelCols, task_.cols - p * kInt8PanelCols);
  }

  const Task& task_;
  const Task* const next_;
  const Int8Product& product_;
  const Int8Activations& x_;
  const WeightMatrix& w_;
  const Int8Kernel& kernel_;
  const int planes_;
  const int64_t block_;  // of the depth
  int64_t panel_bytes_;
  int64_t tile_floats_;
  int64_t first_fine_tile_, fine_tiles_;
  StripFetch fetch_;
  Int8PanelBuffer panels_[kInt8StripPanels];
  uint8_t* unpacked_;  // rows of one panel
  float* fine_sums_;   // [fine_tiles_][kInt8StripPanels][tile_rows][kInt8PanelCols]
  float* sums_;        // the same of all tiles, or of one alone if the depth is one block
};

}  // namespace

void Int8MatMul(std::span<const Int8Product> products, ThreadPool& pool) {
  const std::vector<Task> tasks = CutIntoTasks(products, pool.size());
  int64_t multiplications = 0;
  for (const Int8Product& product : products) {
    multiplications += product.x->rows() * product.w->rows * product.w->cols;
  }
  ForTasks(static_cast<int64_t>(tasks.size()), multiplications, pool, [&](int64_t i) {
    const auto next = static_cast<size_t>(i + pool.size());
    TaskRun(tasks[static_cast<size_t>(i)], next < tasks.size() ? &tasks[next] : nullptr).Run();
  });
}

}  // namespace qwen_image
#endif

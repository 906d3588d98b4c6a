#include <algorithm>

#include "kernels/interface.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

void MatMulTask(const GemmTask& task, const PackedRows& x, const WeightMatrix& w, const float* bias, View y,
                bool add) {
  GemmRun(task, w, bias, x, y, add ? GemmStart::kOutput : GemmStart::kBias).Run();
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(MatMulTask);
HWY_EXPORT(TargetName);

namespace {

void PackRows(ConstView x, ThreadPool& pool, float* packed /*[depth blocks][rows][kDepthBlock]*/) {
  ForPieces(x.rows, 2 * x.cols * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < x.cols; k += kDepthBlock) {
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(x.row(r) + k, std::min(kDepthBlock, x.cols - k), packed + k * x.rows + r * kDepthBlock);
      }
    }
  });
}

void Multiply(ConstView x, const WeightMatrix& w, const float* bias, View y, bool add, ThreadPool& pool) {
  if (x.rows <= 0 || w.rows <= 0) return;
  const int64_t part = RowsAtOnce(x.rows);
  SharedScratch packed(RoundUp(w.cols, kDepthBlock) * part);
  for (int64_t first = 0; first < x.rows; first += part) {
    const int64_t some = std::min(part, x.rows - first);
    PackRows(x.Rows(first, some), pool, packed.data());
    const PackedRows packed_rows{packed.data(), first, some};
    const std::vector<GemmTask> tasks = CutProduct(first, some, w.rows, pool.size());
    ForTasks(static_cast<int64_t>(tasks.size()), some * w.rows * w.cols, pool, [&](int64_t i) {
      HWY_DYNAMIC_DISPATCH(MatMulTask)(tasks[static_cast<size_t>(i)], packed_rows, w, bias, y, add);
    });
  }
}

}  // namespace

void MatMul(ConstView x, const WeightMatrix& w, const float* bias, View y, ThreadPool& pool) {
  Multiply(x, w, bias, y, /*add=*/false, pool);
}

void AddMatMul(ConstView x, const WeightMatrix& w, View y, ThreadPool& pool) {
  Multiply(x, w, nullptr, y, /*add=*/true, pool);
}

std::string InstructionSet() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace qwen_image
#endif

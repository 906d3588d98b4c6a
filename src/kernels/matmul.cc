#include <algorithm>

#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

void MatMulTask(const GemmTask& task, const PackedRows& x, const WeightMatrix& w, const float* bias, float* y,
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

void PackRows(const float* x, int64_t rows, int64_t depth, ThreadPool& pool,
              float* packed /*[depth blocks][rows][kDepthBlock]*/) {
  ForPieces(rows, 2 * depth * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < depth; k += kDepthBlock) {
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(x + r * depth + k, std::min(kDepthBlock, depth - k), packed + k * rows + r * kDepthBlock);
      }
    }
  });
}

void Multiply(const float* x, int64_t rows, const WeightMatrix& w, const float* bias, float* y, bool add,
              ThreadPool& pool) {
  if (rows <= 0 || w.rows <= 0) return;
  const int64_t part = CeilDiv(rows, CeilDiv(rows, kMaxRows));
  SharedScratch packed(RoundUp(w.cols, kDepthBlock) * part);
  for (int64_t first = 0; first < rows; first += part) {
    const int64_t some = std::min(part, rows - first);
    PackRows(x + first * w.cols, some, w.cols, pool, packed.data());
    const PackedRows packed_rows{packed.data(), first, some};
    const std::vector<GemmTask> tasks = CutProduct(first, some, w.rows, pool.size());
    ForTasks(static_cast<int64_t>(tasks.size()), some * w.rows * w.cols, pool, [&](int64_t i) {
      HWY_DYNAMIC_DISPATCH(MatMulTask)(tasks[static_cast<size_t>(i)], packed_rows, w, bias, y, add);
    });
  }
}

}  // namespace

void MatMul(const float* x, int64_t rows, const WeightMatrix& w, const float* bias, float* y,
            ThreadPool& pool) {
  Multiply(x, rows, w, bias, y, /*add=*/false, pool);
}

void AddMatMul(const float* x, int64_t rows, const WeightMatrix& w, float* y, ThreadPool& pool) {
  Multiply(x, rows, w, nullptr, y, /*add=*/true, pool);
}

std::string InstructionSet() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace qwen_image
#endif

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

void MatMulTask(const GemmTask& task, const float* x, const WeightMatrix& w, const float* bias, float* y,
                bool add) {
  const auto copy_rows = [&](int64_t row, int64_t rows, int64_t k, int64_t depth, float* to) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * kDepthBlock, x + (row + r) * w.cols + k,
                  static_cast<size_t>(depth) * sizeof(float));
    }
  };
  GemmRun(task, w, bias, copy_rows, y, add ? GemmStart::kOutput : GemmStart::kBias).Run();
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(MatMulTask);
HWY_EXPORT(TargetName);

void MatMul(const float* x, int64_t rows, const WeightMatrix& w, const float* bias, float* y,
            ThreadPool& pool) {
  if (rows <= 0 || w.rows <= 0) return;
  const GemmTasks tasks({rows, w.rows, w.cols});
  ForTasks(tasks.count(), rows * w.rows * w.cols, pool, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(MatMulTask)(tasks[i], x, w, bias, y, /*add=*/false);
  });
}

void AddMatMul(const float* x, int64_t rows, const WeightMatrix& w, float* y, ThreadPool& pool) {
  if (rows <= 0 || w.rows <= 0) return;
  const GemmTasks tasks({rows, w.rows, w.cols});
  ForTasks(tasks.count(), rows * w.rows * w.cols, pool, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(MatMulTask)(tasks[i], x, w, nullptr, y, /*add=*/true);
  });
}

std::string InstructionSet() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace qwen_image
#endif

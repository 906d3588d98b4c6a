#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());

// The first mean is only a good guess: the second pass measures how far off it is, and the third takes that
// off as well. So a mean that dwarfs the deviations costs no accuracy (a residual stream of 5e7 is normal in
// this model).
void LayerNormRows(const float* x, int64_t rows, int64_t cols, float eps, float* y) {
  const F32 d;
  const double n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const float guess = static_cast<float>(SumOf(d, x, cols, [](VF32 v) HWY_ATTR { return v; }) / n);
    const VF32 g = hn::Set(d, guess);
    const double off = SumOf(d, x, cols, [&](VF32 v) HWY_ATTR { return hn::Sub(v, g); }) / n;
    const double squares = SumOf(d, x, cols, [&](VF32 v) HWY_ATTR {
      const VF32 difference = hn::Sub(v, g);
      return hn::Mul(difference, difference);
    });
    const double variance = std::max(0.0, squares / n - off * off);
    const float factor = static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(eps)));
    const float rest = static_cast<float>(off);
    const VF32 f = hn::Set(d, factor);
    const VF32 o = hn::Set(d, rest);
    int64_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) {
      hn::StoreU(hn::Mul(hn::Sub(hn::Sub(hn::LoadU(d, x + i), g), o), f), d, y + i);
    }
    for (; i < cols; ++i) y[i] = ((x[i] - guess) - rest) * factor;
  }
}

// y = x · factor · weight
HWY_INLINE void ScaleRow(const float* x, int64_t cols, float factor, const float* weight, float* y) {
  const F32 d;
  const VF32 f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), f), hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < cols; ++i) y[i] = x[i] * factor * weight[i];
}

void RmsNormRows(const float* x, int64_t rows, int64_t cols, const float* weight, float eps, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const double mean = SumOfSquares(F32(), x, cols) / static_cast<double>(cols);
    ScaleRow(x, cols, static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps))), weight, y);
  }
}

void ChannelNormRows(const float* x, int64_t rows, int64_t cols, const float* gamma, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    ScaleRow(x, cols, ChannelNormFactor(F32(), x, cols), gamma, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(LayerNormRows);
HWY_EXPORT(RmsNormRows);
HWY_EXPORT(ChannelNormRows);

namespace {
int64_t RowBytes(int64_t cols) { return 2 * cols * static_cast<int64_t>(sizeof(float)); }
}  // namespace

void LayerNorm(const float* x, int64_t rows, int64_t cols, float eps, float* y, ThreadPool& pool) {
  ForPieces(rows, RowBytes(cols), pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LayerNormRows)(x + begin * cols, end - begin, cols, eps, y + begin * cols);
  });
}

void RmsNorm(const float* x, int64_t rows, int64_t cols, const float* weight, float eps, float* y,
             ThreadPool& pool) {
  ForPieces(rows, RowBytes(cols), pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)(x + begin * cols, end - begin, cols, weight, eps, y + begin * cols);
  });
}

void ChannelNorm(const float* x, int64_t rows, int64_t cols, const float* gamma, float* y, ThreadPool& pool) {
  ForPieces(rows, RowBytes(cols), pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ChannelNormRows)(x + begin * cols, end - begin, cols, gamma, y + begin * cols);
  });
}

}  // namespace qwen_image
#endif

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
// The first mean is only a good guess: the second pass measures how far off it is, and the last one takes
// that off as well. So a mean that dwarfs the deviations costs no accuracy (a residual stream of 5e7 is
// normal in this model). Each normed value goes through `finish`, together with the same element of `other`.
template <class Finish, class... Other>
HWY_INLINE void LayerNormRow(const float* x, int64_t cols, float eps, float* y, const Finish& finish,
                             const Other*... other) {
  const F32 d;
  const double n = static_cast<double>(cols);
  const float guess = static_cast<float>(SumOf(d, x, cols, [](VF32 v) HWY_ATTR { return v; }) / n);
  const VF32 g = hn::Set(d, guess);
  const double off = SumOf(d, x, cols, [&](VF32 v) HWY_ATTR { return hn::Sub(v, g); }) / n;
  const double squares = SumOf(d, x, cols, [&](VF32 v) HWY_ATTR {
    const VF32 difference = hn::Sub(v, g);
    return hn::Mul(difference, difference);
  });
  const double variance = std::max(0.0, squares / n - off * off);
  const VF32 f = hn::Set(d, static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(eps))));
  const VF32 o = hn::Set(d, static_cast<float>(off));
  Map(
      cols, y,
      [&](VF32 v, auto... more) HWY_ATTR { return finish(hn::Mul(hn::Sub(hn::Sub(v, g), o), f), more...); },
      x, other...);
}

void LayerNormRows(const float* x, int64_t rows, int64_t cols, float eps, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    LayerNormRow(x, cols, eps, y, [](VF32 v) HWY_ATTR { return v; });
  }
}

void LayerNormModulateRows(const float* x, int64_t rows, int64_t cols, float eps, const float* scale,
                           const float* shift, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    LayerNormRow(
        x, cols, eps, y, [](VF32 v, VF32 mul, VF32 add) HWY_ATTR { return Modulated(v, mul, add); }, scale,
        shift);
  }
}

void RmsNormRows(const float* x, int64_t rows, int64_t cols, const float* weight, float eps, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) RmsNormRow(x, cols, weight, eps, y);
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
HWY_EXPORT(LayerNormModulateRows);
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

void LayerNormModulate(const float* x, int64_t rows, int64_t cols, float eps, const float* scale,
                       const float* shift, float* y, ThreadPool& pool) {
  ForPieces(rows, RowBytes(cols), pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LayerNormModulateRows)
    (x + begin * cols, end - begin, cols, eps, scale, shift, y + begin * cols);
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

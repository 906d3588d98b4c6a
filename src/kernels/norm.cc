#include <algorithm>
#include <cmath>

#include "kernels/interface.h"
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
  double sums[2];  // of the deviations from the guess, and of their squares
  SumAll(
      d, x, cols,
      [&](VF32 v, VF32(&values)[2]) HWY_ATTR {
        values[0] = hn::Sub(v, g);
        values[1] = hn::Mul(values[0], values[0]);
      },
      sums);
  const double off = sums[0] / n, squares = sums[1];
  const double variance = std::max(0.0, squares / n - off * off);
  const VF32 f = hn::Set(d, static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(eps))));
  const VF32 o = hn::Set(d, static_cast<float>(off));
  Map(
      cols, y,
      [&](VF32 v, auto... more) HWY_ATTR { return finish(hn::Mul(hn::Sub(hn::Sub(v, g), o), f), more...); },
      x, other...);
}

void LayerNormRows(ConstView x, float eps, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    LayerNormRow(x.row(r), x.cols, eps, y.row(r), [](VF32 v) HWY_ATTR { return v; });
  }
}

void LayerNormAffineRows(ConstView x, const float* weight, const float* bias, float eps, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    LayerNormRow(
        x.row(r), x.cols, eps, y.row(r),
        [](VF32 v, VF32 mul, VF32 add) HWY_ATTR { return hn::MulAdd(v, mul, add); }, weight, bias);
  }
}

void LayerNormModulateRows(ConstView x, float eps, const float* scale, const float* shift, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    LayerNormRow(
        x.row(r), x.cols, eps, y.row(r),
        [](VF32 v, VF32 mul, VF32 add) HWY_ATTR { return Modulated(v, mul, add); }, scale, shift);
  }
}

void RmsNormRows(ConstView x, const float* weight, float eps, View y) {
  for (int64_t r = 0; r < x.rows; ++r) RmsNormRow(x.row(r), x.cols, weight, eps, y.row(r));
}

void RmsNormHeadsRows(View x, const float* weight, int64_t head_dim, float eps) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* const row = x.row(r);
    for (int64_t c = 0; c < x.cols; c += head_dim) RmsNormRow(row + c, head_dim, weight, eps, row + c);
  }
}

void ChannelNormRows(ConstView x, const float* gamma, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    ScaleRow(x.row(r), x.cols, ChannelNormFactor(F32(), x.row(r), x.cols), gamma, y.row(r));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(LayerNormRows);
HWY_EXPORT(LayerNormAffineRows);
HWY_EXPORT(LayerNormModulateRows);
HWY_EXPORT(RmsNormRows);
HWY_EXPORT(RmsNormHeadsRows);
HWY_EXPORT(ChannelNormRows);

namespace {

// Calls rows(some rows of x, the same rows of y) for all of them.
template <class Rows>
void ForRows(ConstView x, View y, ThreadPool& pool, const Rows& rows) {
  const int64_t row_bytes = 2 * x.cols * static_cast<int64_t>(sizeof(float));
  ForPieces(x.rows, row_bytes, pool, [&](int64_t begin, int64_t end) {
    rows(x.Rows(begin, end - begin), y.Rows(begin, end - begin));
  });
}

}  // namespace

void LayerNorm(ConstView x, float eps, View y, ThreadPool& pool) {
  ForRows(x, y, pool, [&](ConstView from, View to) { HWY_DYNAMIC_DISPATCH(LayerNormRows)(from, eps, to); });
}

void LayerNorm(ConstView x, const float* weight, const float* bias, float eps, View y, ThreadPool& pool) {
  ForRows(x, y, pool, [&](ConstView from, View to) {
    HWY_DYNAMIC_DISPATCH(LayerNormAffineRows)(from, weight, bias, eps, to);
  });
}

void LayerNormModulate(ConstView x, float eps, const float* scale, const float* shift, View y,
                       ThreadPool& pool) {
  ForRows(x, y, pool, [&](ConstView from, View to) {
    HWY_DYNAMIC_DISPATCH(LayerNormModulateRows)(from, eps, scale, shift, to);
  });
}

void RmsNorm(ConstView x, const float* weight, float eps, View y, ThreadPool& pool) {
  ForRows(x, y, pool, [&](ConstView from, View to) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)(from, weight, eps, to);
  });
}

void RmsNormHeads(View x, const float* weight, int64_t head_dim, float eps, ThreadPool& pool) {
  ForRows(x, x, pool, [&](ConstView, View to) {
    HWY_DYNAMIC_DISPATCH(RmsNormHeadsRows)(to, weight, head_dim, eps);
  });
}

void ChannelNorm(ConstView x, const float* gamma, View y, ThreadPool& pool) {
  ForRows(x, y, pool, [&](ConstView from, View to) {
    HWY_DYNAMIC_DISPATCH(ChannelNormRows)(from, gamma, to);
  });
}

}  // namespace qwen_image
#endif

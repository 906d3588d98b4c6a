#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());

// Σ f(x[i]), in single precision over pieces of 256 and in double over the pieces: as fast as all of it in
// single, and one huge element does not swallow the small ones of the whole row.
template <class F>
HWY_INLINE double SumOf(const float* x, int64_t count, const F& f) {
  const F32 d;
  constexpr int64_t kPiece = 256;
  double sum = 0;
  int64_t i = 0;
  while (i + 4 * kLanes <= count) {
    const int64_t end = std::min(i + kPiece, count);
    VF32 sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      sum0 = hn::Add(sum0, f(hn::LoadU(d, x + i)));
      sum1 = hn::Add(sum1, f(hn::LoadU(d, x + i + kLanes)));
      sum2 = hn::Add(sum2, f(hn::LoadU(d, x + i + 2 * kLanes)));
      sum3 = hn::Add(sum3, f(hn::LoadU(d, x + i + 3 * kLanes)));
    }
    sum += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  }
  while (i < count) {
    const int64_t some = std::min(kLanes, count - i);
    HWY_ALIGN float buffer[kLanes] = {};
    std::memcpy(buffer, x + i, static_cast<size_t>(some) * sizeof(float));
    hn::Store(f(hn::Load(d, buffer)), d, buffer);
    for (int64_t j = 0; j < some; ++j) sum += buffer[j];
    i += some;
  }
  return sum;
}

HWY_INLINE double SumOfSquares(const float* x, int64_t count) {
  return SumOf(x, count, [](VF32 v) HWY_ATTR { return hn::Mul(v, v); });
}

// The first mean is only a good guess: the second pass measures how far off it is, and the third takes that
// off as well. So a mean that dwarfs the deviations costs no accuracy (a residual stream of 5e7 is normal in
// this model).
void LayerNormRows(const float* x, int64_t rows, int64_t cols, float eps, float* y) {
  const F32 d;
  const double n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const float guess = static_cast<float>(SumOf(x, cols, [](VF32 v) HWY_ATTR { return v; }) / n);
    const VF32 g = hn::Set(d, guess);
    const double off = SumOf(x, cols, [&](VF32 v) HWY_ATTR { return hn::Sub(v, g); }) / n;
    const double squares = SumOf(x, cols, [&](VF32 v) HWY_ATTR {
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
    const double mean = SumOfSquares(x, cols) / static_cast<double>(cols);
    ScaleRow(x, cols, static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps))), weight, y);
  }
}

void ChannelNormRows(const float* x, int64_t rows, int64_t cols, const float* gamma, float* y) {
  const double root = std::sqrt(static_cast<double>(cols));
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const double norm = std::sqrt(SumOfSquares(x, cols));
    // Written so that a NaN norm stays NaN.
    ScaleRow(x, cols, static_cast<float>(root / (norm < 1e-12 ? 1e-12 : norm)), gamma, y);
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

// Sums over a row and norms of one, compiled once per instruction set: what the norms and the kernels that
// are fused with one share, so that both compute the same bits.
#if defined(QWEN_IMAGE_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_NORM_INL_H_
#undef QWEN_IMAGE_KERNELS_NORM_INL_H_
#else
#define QWEN_IMAGE_KERNELS_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// Σ f(x[i]), in single precision over pieces of 256 and in double over the pieces: as fast as all of it in
// single, and one huge element does not swallow the small ones of the whole row.
template <class D, class F>
HWY_INLINE double SumOf(D d, const float* x, int64_t count, const F& f) {
  using V = hn::Vec<D>;
  constexpr int64_t kWidth = hn::MaxLanes(D());
  constexpr int64_t kPiece = 256;
  double sum = 0;
  int64_t i = 0;
  while (i + kWidth <= count) {
    const int64_t end = std::min(i + kPiece, count);
    V sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (; i + 4 * kWidth <= end; i += 4 * kWidth) {
      sum0 = hn::Add(sum0, f(hn::LoadU(d, x + i)));
      sum1 = hn::Add(sum1, f(hn::LoadU(d, x + i + kWidth)));
      sum2 = hn::Add(sum2, f(hn::LoadU(d, x + i + 2 * kWidth)));
      sum3 = hn::Add(sum3, f(hn::LoadU(d, x + i + 3 * kWidth)));
    }
    for (; i + kWidth <= end; i += kWidth) sum0 = hn::Add(sum0, f(hn::LoadU(d, x + i)));
    sum += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  }
  if (i < count) {
    HWY_ALIGN float buffer[kWidth] = {};
    std::memcpy(buffer, x + i, static_cast<size_t>(count - i) * sizeof(float));
    hn::Store(f(hn::Load(d, buffer)), d, buffer);
    for (int64_t j = 0; j < count - i; ++j) sum += buffer[j];
  }
  return sum;
}

template <class D>
HWY_INLINE double SumOfSquares(D d, const float* x, int64_t count) {
  return SumOf(d, x, count, [](hn::Vec<D> v) HWY_ATTR { return hn::Mul(v, v); });
}

// What ChannelNorm multiplies the channels of a pixel with.
template <class D>
HWY_INLINE float ChannelNormFactor(D d, const float* x, int64_t channels) {
  const double norm = std::sqrt(SumOfSquares(d, x, channels));
  // Written so that a NaN norm stays NaN.
  return static_cast<float>(std::sqrt(static_cast<double>(channels)) / (norm < 1e-12 ? 1e-12 : norm));
}

// y = x · factor · weight
HWY_INLINE void ScaleRow(const float* x, int64_t cols, float factor, const float* weight, float* y) {
  const VF32 f = hn::Set(F32(), factor);
  Map(
      cols, y, [&](VF32 v, VF32 w) HWY_ATTR { return hn::Mul(hn::Mul(v, f), w); }, x, weight);
}

// y = x / √(mean(x²) + eps) · weight
HWY_INLINE void RmsNormRow(const float* x, int64_t cols, const float* weight, float eps, float* y) {
  const double mean = SumOfSquares(F32(), x, cols) / static_cast<double>(cols);
  ScaleRow(x, cols, static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps))), weight, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

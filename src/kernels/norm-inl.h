// Sums over a row, and the root-mean-square norm of one, compiled once per instruction set.
#if defined(QWEN_IMAGE_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_NORM_INL_H_
#undef QWEN_IMAGE_KERNELS_NORM_INL_H_
#else
#define QWEN_IMAGE_KERNELS_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

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

// y = x · factor · weight
HWY_INLINE void ScaleRow(const float* x, int64_t cols, float factor, const float* weight, float* y) {
  const VF32 f = hn::Set(F32(), factor);
  Map(
      cols, y, [&](VF32 v, VF32 w) HWY_ATTR { return hn::Mul(hn::Mul(v, f), w); }, x, weight);
}

// y = x / √(mean(x²) + eps) · weight
HWY_INLINE void RmsNormRow(const float* x, int64_t cols, const float* weight, float eps, float* y) {
  const double mean = SumOfSquares(x, cols) / static_cast<double>(cols);
  ScaleRow(x, cols, static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps))), weight, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

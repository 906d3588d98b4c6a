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

// Several sums in one pass: f(x[i], values) gives what is added to each of them. In single precision over
// pieces of 256 and in double over the pieces: as fast as all of it in single, and one huge element does not
// swallow the small ones of the whole row.
template <int kSums, class D, class F>
HWY_INLINE void SumAll(D d, const float* x, int64_t count, const F& f, double (&sums)[kSums]) {
  using V = hn::Vec<D>;
  constexpr int64_t kWidth = hn::MaxLanes(D());
  constexpr int64_t kPiece = 256;
  constexpr int kParts = 4;  // sums that do not wait for each other
  const auto add = [&](const float* from, V(&part)[kSums]) HWY_ATTR {
    V values[kSums];
    f(hn::LoadU(d, from), values);
    for (int s = 0; s < kSums; ++s) part[s] = hn::Add(part[s], values[s]);
  };
  for (double& sum : sums) sum = 0;
  int64_t i = 0;
  while (i + kWidth <= count) {
    const int64_t end = std::min(i + kPiece, count);
    V parts[kParts][kSums];
    for (auto& part : parts)
      for (V& sum : part) sum = hn::Zero(d);
    for (; i + kParts * kWidth <= end; i += kParts * kWidth) {
      for (int p = 0; p < kParts; ++p) add(x + i + p * kWidth, parts[p]);
    }
    for (; i + kWidth <= end; i += kWidth) add(x + i, parts[0]);
    for (int s = 0; s < kSums; ++s) {
      const V all = hn::Add(hn::Add(parts[0][s], parts[1][s]), hn::Add(parts[2][s], parts[3][s]));
      sums[s] += hn::GetLane(hn::SumOfLanes(d, all));
    }
  }
  if (i == count) return;
  HWY_ALIGN float buffer[kWidth] = {};
  std::memcpy(buffer, x + i, static_cast<size_t>(count - i) * sizeof(float));
  V values[kSums];
  f(hn::Load(d, buffer), values);
  for (int s = 0; s < kSums; ++s) {
    hn::Store(values[s], d, buffer);
    for (int64_t j = 0; j < count - i; ++j) sums[s] += buffer[j];
  }
}

// Σ f(x[i])
template <class D, class F>
HWY_INLINE double SumOf(D d, const float* x, int64_t count, const F& f) {
  using V = hn::Vec<D>;
  double sums[1];
  SumAll(
      d, x, count, [&](V v, V(&values)[1]) HWY_ATTR { values[0] = f(v); }, sums);
  return sums[0];
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

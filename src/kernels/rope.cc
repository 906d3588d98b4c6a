#include "kernels/kernels.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
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

// (a + ib)(cos + i sin)
HWY_INLINE void RotatePair(float cos, float sin, float& a, float& b) {
  const float real = a * cos - b * sin;
  b = a * sin + b * cos;
  a = real;
}

void RopeInterleavedTokens(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                           const float* sin) {
  const F32 d;
  const int64_t half = head_dim / 2;
  // Every head of a token turns by the same angles: spread them out once, as c c and -s s for each pair.
  float* const wide_cos = ThreadScratch(2 * head_dim);
  float* const wide_sin = wide_cos + head_dim;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* token_cos = cos + t * half;
    const float* token_sin = sin + t * half;
    for (int64_t i = 0; i < half; ++i) {
      wide_cos[2 * i] = wide_cos[2 * i + 1] = token_cos[i];
      wide_sin[2 * i] = -token_sin[i];
      wide_sin[2 * i + 1] = token_sin[i];
    }
    for (int64_t h = 0; h < heads; ++h, x += head_dim) {
      int64_t i = 0;
      if constexpr (kLanes > 1) {  // plain C++ has no neighbour to swap with
        for (; i + kLanes <= head_dim; i += kLanes) {
          const VF32 v = hn::LoadU(d, x + i);
          const VF32 swapped = hn::Reverse2(d, v);
          const VF32 turned =
              hn::MulAdd(v, hn::LoadU(d, wide_cos + i), hn::Mul(swapped, hn::LoadU(d, wide_sin + i)));
          hn::StoreU(turned, d, x + i);
        }
      }
      for (; i + 1 < head_dim; i += 2) RotatePair(token_cos[i / 2], token_sin[i / 2], x[i], x[i + 1]);
    }
  }
}

void RopeHalvesTokens(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                      const float* sin) {
  const F32 d;
  const int64_t half = head_dim / 2;
  for (int64_t t = 0; t < tokens; ++t, cos += half, sin += half) {
    for (int64_t h = 0; h < heads; ++h, x += head_dim) {
      int64_t i = 0;
      for (; i + kLanes <= half; i += kLanes) {
        const VF32 a = hn::LoadU(d, x + i);
        const VF32 b = hn::LoadU(d, x + half + i);
        const VF32 c = hn::LoadU(d, cos + i);
        const VF32 s = hn::LoadU(d, sin + i);
        hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
        hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i);
      }
      for (; i < half; ++i) RotatePair(cos[i], sin[i], x[i], x[half + i]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(RopeInterleavedTokens);
HWY_EXPORT(RopeHalvesTokens);

void RopeInterleaved(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                     const float* sin, ThreadPool& pool) {
  const int64_t size = heads * head_dim;
  ForPieces(tokens, size * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    const int64_t angle = begin * (head_dim / 2);
    HWY_DYNAMIC_DISPATCH(RopeInterleavedTokens)
    (x + begin * size, end - begin, heads, head_dim, cos + angle, sin + angle);
  });
}

void RopeHalves(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos, const float* sin,
                ThreadPool& pool) {
  const int64_t size = heads * head_dim;
  ForPieces(tokens, size * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    const int64_t angle = begin * (head_dim / 2);
    HWY_DYNAMIC_DISPATCH(RopeHalvesTokens)
    (x + begin * size, end - begin, heads, head_dim, cos + angle, sin + angle);
  });
}

}  // namespace qwen_image
#endif

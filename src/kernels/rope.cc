#include "kernels/kernels.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
// (a + ib)(cos + i sin)
HWY_INLINE void RotatePair(float cos, float sin, float& a, float& b) {
  const float real = a * cos - b * sin;
  b = a * sin + b * cos;
  a = real;
}

// A token's angles, the same for all of its heads, spread out to c c and -s s for each pair.
class WideAngles {
 public:
  explicit WideAngles(int64_t head_dim)
      : head_dim_(head_dim), wide_cos_(ThreadScratch(2 * head_dim)), wide_sin_(wide_cos_ + head_dim) {}

  void Set(const float* cos, const float* sin) {
    cos_ = cos;
    sin_ = sin;
    for (int64_t i = 0; i < head_dim_ / 2; ++i) {
      wide_cos_[2 * i] = wide_cos_[2 * i + 1] = cos[i];
      wide_sin_[2 * i] = -sin[i];
      wide_sin_[2 * i + 1] = sin[i];
    }
  }

  HWY_INLINE void Rotate(float* x /*[head_dim]*/) const {
    const F32 d;
    int64_t i = 0;
    if constexpr (kLanes > 1) {  // plain C++ has no neighbour to swap with
      for (; i + kLanes <= head_dim_; i += kLanes) {
        const VF32 v = hn::LoadU(d, x + i);
        const VF32 swapped = hn::Reverse2(d, v);
        const VF32 turned =
            hn::MulAdd(v, hn::LoadU(d, wide_cos_ + i), hn::Mul(swapped, hn::LoadU(d, wide_sin_ + i)));
        hn::StoreU(turned, d, x + i);
      }
    }
    for (; i + 1 < head_dim_; i += 2) RotatePair(cos_[i / 2], sin_[i / 2], x[i], x[i + 1]);
  }

 private:
  const int64_t head_dim_;
  float* const wide_cos_;
  float* const wide_sin_;
  const float* cos_ = nullptr;
  const float* sin_ = nullptr;
};

void RopeInterleavedTokens(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                           const float* sin) {
  WideAngles angles(head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    angles.Set(cos + t * (head_dim / 2), sin + t * (head_dim / 2));
    for (int64_t h = 0; h < heads; ++h, x += head_dim) angles.Rotate(x);
  }
}

void RmsNormRopeTokens(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* weight,
                       float eps, const float* cos, const float* sin) {
  WideAngles angles(head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    angles.Set(cos + t * (head_dim / 2), sin + t * (head_dim / 2));
    for (int64_t h = 0; h < heads; ++h, x += head_dim) {
      RmsNormRow(x, head_dim, weight, eps, x);
      angles.Rotate(x);
    }
  }
}

void RopeHalvesTokens(float* tokens_x, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride,
                      const float* cos, const float* sin) {
  const F32 d;
  const int64_t half = head_dim / 2;
  for (int64_t t = 0; t < tokens; ++t, cos += half, sin += half) {
    float* x = tokens_x + t * stride;
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
HWY_EXPORT(RmsNormRopeTokens);
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

void RmsNormRope(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* weight, float eps,
                 const float* cos, const float* sin, ThreadPool& pool) {
  const int64_t size = heads * head_dim;
  ForPieces(tokens, size * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    const int64_t angle = begin * (head_dim / 2);
    HWY_DYNAMIC_DISPATCH(RmsNormRopeTokens)
    (x + begin * size, end - begin, heads, head_dim, weight, eps, cos + angle, sin + angle);
  });
}

void RopeHalves(float* x, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride, const float* cos,
                const float* sin, ThreadPool& pool) {
  const int64_t size = heads * head_dim;
  ForPieces(tokens, size * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    const int64_t angle = begin * (head_dim / 2);
    HWY_DYNAMIC_DISPATCH(RopeHalvesTokens)
    (x + begin * stride, end - begin, heads, head_dim, stride, cos + angle, sin + angle);
  });
}

}  // namespace qwen_image
#endif

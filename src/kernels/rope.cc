#include "kernels/interface.h"
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
  explicit WideAngles(const RopeAngles& angles)
      : angles_(angles),
        head_dim_(angles.head_dim),
        wide_cos_(ThreadScratch(2 * head_dim_)),
        wide_sin_(wide_cos_ + head_dim_) {}

  void SetToken(int64_t token) {
    cos_ = angles_.cos + token * (head_dim_ / 2);
    sin_ = angles_.sin + token * (head_dim_ / 2);
    for (int64_t i = 0; i < head_dim_ / 2; ++i) {
      wide_cos_[2 * i] = wide_cos_[2 * i + 1] = cos_[i];
      wide_sin_[2 * i] = -sin_[i];
      wide_sin_[2 * i + 1] = sin_[i];
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
  const RopeAngles& angles_;
  const int64_t head_dim_;
  float* const wide_cos_;
  float* const wide_sin_;
  const float* cos_ = nullptr;
  const float* sin_ = nullptr;
};

void RopeInterleavedTokens(View x, const RopeAngles& angles, int64_t begin, int64_t end) {
  WideAngles wide(angles);
  for (int64_t t = begin; t < end; ++t) {
    wide.SetToken(t);
    for (int64_t c = 0; c < x.cols; c += angles.head_dim) wide.Rotate(x.row(t) + c);
  }
}

void RmsNormRopeTokens(View x, const float* weight, float eps, const RopeAngles& angles, int64_t begin,
                       int64_t end) {
  WideAngles wide(angles);
  for (int64_t t = begin; t < end; ++t) {
    wide.SetToken(t);
    for (int64_t c = 0; c < x.cols; c += angles.head_dim) {
      float* const head = x.row(t) + c;
      RmsNormRow(head, angles.head_dim, weight, eps, head);
      wide.Rotate(head);
    }
  }
}

HWY_INLINE void RotateHalves(const float* cos /*[half]*/, const float* sin, int64_t half, float* x) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VF32 a = hn::LoadU(d, x + i);
    const VF32 b = hn::LoadU(d, x + half + i);
    const VF32 co = hn::LoadU(d, cos + i);
    const VF32 si = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, si, hn::Mul(a, co)), d, x + i);
    hn::StoreU(hn::MulAdd(a, si, hn::Mul(b, co)), d, x + half + i);
  }
  for (; i < half; ++i) RotatePair(cos[i], sin[i], x[i], x[half + i]);
}

void RopeHalvesTokens(View x, const RopeAngles& angles, int64_t begin, int64_t end) {
  const int64_t half = angles.head_dim / 2;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t c = 0; c < x.cols; c += angles.head_dim)
      RotateHalves(angles.cos + t * half, angles.sin + t * half, half, x.row(t) + c);
  }
}

void RmsNormRopeHalvesTokens(View x, const float* weight, float eps, const RopeAngles& angles, int64_t begin,
                             int64_t end) {
  const int64_t half = angles.head_dim / 2;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t c = 0; c < x.cols; c += angles.head_dim) {
      float* const head = x.row(t) + c;
      RmsNormRow(head, angles.head_dim, weight, eps, head);
      RotateHalves(angles.cos + t * half, angles.sin + t * half, half, head);
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
HWY_EXPORT(RmsNormRopeHalvesTokens);

namespace {

// Calls task(begin, end) for parts of x's tokens.
template <class Task>
void ForTokens(View x, ThreadPool& pool, const Task& task) {
  ForPieces(x.rows, x.cols * static_cast<int64_t>(sizeof(float)), pool, task);
}

}  // namespace

void RopeInterleaved(View x, const RopeAngles& angles, ThreadPool& pool) {
  ForTokens(x, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeInterleavedTokens)(x, angles, begin, end);
  });
}

void RmsNormRope(View x, const float* weight, float eps, const RopeAngles& angles, ThreadPool& pool) {
  ForTokens(x, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRopeTokens)(x, weight, eps, angles, begin, end);
  });
}

void RopeHalves(View x, const RopeAngles& angles, ThreadPool& pool) {
  ForTokens(x, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeHalvesTokens)(x, angles, begin, end);
  });
}

void RmsNormRopeHalves(View x, const float* weight, float eps, const RopeAngles& angles, ThreadPool& pool) {
  ForTokens(x, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRopeHalvesTokens)(x, weight, eps, angles, begin, end);
  });
}

}  // namespace qwen_image
#endif

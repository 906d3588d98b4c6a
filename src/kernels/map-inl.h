// What kernels that work element by element share, compiled once per instruction set.
#if defined(QWEN_IMAGE_KERNELS_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_MAP_INL_H_
#undef QWEN_IMAGE_KERNELS_MAP_INL_H_
#else
#define QWEN_IMAGE_KERNELS_MAP_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());

// to[i] = f(in[i]...) for i < count. The last elements take the same vector path through a buffer, so that a
// value does not depend on its position.
template <class F, class... In>
HWY_INLINE void Map(int64_t count, float* to, const F& f, const In*... in) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(f(hn::LoadU(d, in + i)...), d, to + i);
  if (i == count) return;
  const size_t bytes = static_cast<size_t>(count - i) * sizeof(float);
  const auto load = [&](const float* from) HWY_ATTR {
    HWY_ALIGN float buffer[kLanes] = {};
    std::memcpy(buffer, from + i, bytes);
    return hn::Load(d, buffer);
  };
  HWY_ALIGN float result[kLanes];
  hn::Store(f(load(in)...), d, result);
  std::memcpy(to + i, result, bytes);
}

// v · (1 + scale) + shift
HWY_INLINE VF32 Modulated(VF32 v, VF32 scale, VF32 shift) {
  return hn::MulAdd(v, hn::Add(hn::Set(F32(), 1.0f), scale), shift);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

// One number of each of many vectors, compiled once per instruction set.
#if defined(QWEN_IMAGE_KERNELS_INT8_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_INT8_REDUCE_INL_H_
#undef QWEN_IMAGE_KERNELS_INT8_REDUCE_INL_H_
#else
#define QWEN_IMAGE_KERNELS_INT8_REDUCE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// Groups or rows are looked at kLanes at a time, so that what is one number for each of them is one vector.
using Partial = float[kLanes][kLanes];  // a vector for each group or row

// out[i] = op over all lanes of v[i], for as many vectors as there are lanes. Two vectors become one at a
// time: half the work of kLanes reductions that each end in one lane.
template <class Op>
HWY_INLINE VF32 ReduceEach(const Partial& v, [[maybe_unused]] const Op& op) {
  const F32 d;
#if HWY_TARGET == HWY_SCALAR
  return hn::Load(d, v[0]);
#else
  const hn::Repartition<double, F32> d64;
  // Blocks of 4 lanes, each with what is left of the vectors i, i + 1, i + 2 and i + 3.
  const auto of_blocks = [&](size_t i) HWY_ATTR {
    const auto pair = [&](size_t k) HWY_ATTR {
      const VF32 a = hn::Load(d, v[k]), b = hn::Load(d, v[k + 1]);
      return hn::BitCast(d64, op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    };
    const auto ab = pair(i), cd = pair(i + 2);
    return op(hn::BitCast(d, hn::InterleaveLower(d64, ab, cd)),
              hn::BitCast(d, hn::InterleaveUpper(d64, ab, cd)));
  };
  const auto halves = [&](VF32 a, VF32 b) HWY_ATTR {
    return op(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  };
  if constexpr (kLanes == 4) {
    return of_blocks(0);
  } else if constexpr (kLanes == 8) {
    return halves(of_blocks(0), of_blocks(4));
  } else {
    const VF32 even = halves(of_blocks(0), of_blocks(8)), odd = halves(of_blocks(4), of_blocks(12));
    return op(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even),
              hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even)));
  }
#endif
}

HWY_INLINE VF32 MaxEach(const Partial& v) {
  return ReduceEach(v, [](VF32 a, VF32 b) HWY_ATTR { return hn::Max(a, b); });
}

HWY_INLINE VF32 SumEach(const Partial& v) {
  return ReduceEach(v, [](VF32 a, VF32 b) HWY_ATTR { return hn::Add(a, b); });
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

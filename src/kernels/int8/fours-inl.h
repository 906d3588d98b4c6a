// Rows of bytes as tiles of them, compiled once per instruction set.
#if defined(QWEN_IMAGE_KERNELS_INT8_FOURS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_INT8_FOURS_INL_H_
#undef QWEN_IMAGE_KERNELS_INT8_FOURS_INL_H_
#else
#define QWEN_IMAGE_KERNELS_INT8_FOURS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// Rows of `depth` bytes, `stride` apart, to [depth / 4][tile_rows][4]. Nothing is written of rows that are
// not there. `depth` is a multiple of 16.
HWY_INLINE void InterleaveFours(const int8_t* bytes, int64_t stride, int64_t rows, int64_t depth,
                                int64_t tile_rows, int8_t* to) {
  int64_t whole = 0;  // rows that are interleaved by fours
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<uint32_t, 4> d;
  whole = rows / 4 * 4;
  for (int64_t k = 0; k < depth; k += 16) {
    for (int64_t r = 0; r < whole; r += 4) {
      const auto load = [&](int64_t row) HWY_ATTR {
        return hn::LoadU(d, reinterpret_cast<const uint32_t*>(bytes + (r + row) * stride + k));
      };
      auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
      TransposeFours(d, r0, r1, r2, r3);
      const auto store = [&](int64_t four, hn::Vec<decltype(d)> v) HWY_ATTR {
        hn::StoreU(v, d, reinterpret_cast<uint32_t*>(to + (k + 4 * four) * tile_rows + 4 * r));
      };
      store(0, r0);
      store(1, r1);
      store(2, r2);
      store(3, r3);
    }
  }
#endif
  for (int64_t r = whole; r < rows; ++r)
    for (int64_t k = 0; k < depth; k += 4) std::memcpy(to + k * tile_rows + 4 * r, bytes + r * stride + k, 4);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

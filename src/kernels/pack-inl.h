// Packing of weights into the panels that the register tiles of gemm-inl.h read, compiled once per
// instruction set. A panel is [depth][kTileCols]: kTileCols weight rows, transposed and converted to float.
#if defined(QWEN_IMAGE_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_PACK_INL_H_
#undef QWEN_IMAGE_KERNELS_PACK_INL_H_
#else
#define QWEN_IMAGE_KERNELS_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
inline constexpr int64_t kLanes = hn::MaxLanes(F32());
inline constexpr int64_t kTileCols = 2 * kLanes;

// How weights of each type become floats. Rows may start at any address.
struct LoadF32 {
  using Raw = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> Convert(D /*d*/, hn::Vec<D> v) {
    return v;
  }
};
struct LoadBF16 {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> Convert(D d, hn::Vec<hn::Rebind<uint16_t, D>> v) {
    const hn::Rebind<uint32_t, D> du32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, v)));
  }
};
struct LoadF16 {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> Convert(D d, hn::Vec<hn::Rebind<uint16_t, D>> v) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), v));
  }
};

#if HWY_TARGET != HWY_SCALAR
// Four elements from each of rows[0], rows[4], rows[8], …: as many rows as the vector has blocks of 4 lanes.
template <class D, class Raw = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> FoursOfRows(D d, const uint8_t* const* rows, int64_t byte) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, reinterpret_cast<const Raw*>(rows[0] + byte));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, FoursOfRows(half, rows + hn::MaxLanes(d) / 2, byte), FoursOfRows(half, rows, byte));
  }
}

// Four vectors, of which r[i] holds four elements of each of rows i, i + 4, i + 8, …, become four that hold
// one element of every row.
template <class D>
HWY_INLINE void TransposeFours(D d, hn::Vec<D>& r0, hn::Vec<D>& r1, hn::Vec<D>& r2, hn::Vec<D>& r3) {
  const hn::Repartition<uint64_t, D> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  r0 = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  r1 = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  r2 = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  r3 = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

// Transposes kLanes rows × 4 elements: panel[k][0…kLanes).
template <class Load>
HWY_INLINE void PackFours(const uint8_t* const* rows, int64_t k, float* HWY_RESTRICT panel) {
  const F32 d;
  const hn::Rebind<typename Load::Raw, F32> draw;
  const int64_t byte = k * static_cast<int64_t>(sizeof(typename Load::Raw));
  VF32 r0 = Load::Convert(d, FoursOfRows(draw, rows + 0, byte));
  VF32 r1 = Load::Convert(d, FoursOfRows(draw, rows + 1, byte));
  VF32 r2 = Load::Convert(d, FoursOfRows(draw, rows + 2, byte));
  VF32 r3 = Load::Convert(d, FoursOfRows(draw, rows + 3, byte));
  TransposeFours(d, r0, r1, r2, r3);
  hn::StoreU(r0, d, panel);
  hn::StoreU(r1, d, panel + kTileCols);
  hn::StoreU(r2, d, panel + 2 * kTileCols);
  hn::StoreU(r3, d, panel + 3 * kTileCols);
}

// Two neighbours of 16 bits become two floats, one `panel` row each.
HWY_INLINE void StorePairsOfBF16(VF32 pairs, float* HWY_RESTRICT panel) {
  const F32 d;
  const hn::Rebind<uint32_t, F32> du32;
  const auto bits = hn::BitCast(du32, pairs);
  hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, panel);
  hn::StoreU(hn::BitCast(d, hn::And(bits, hn::Set(du32, 0xffff0000u))), d, panel + kTileCols);
}

// Transposes kLanes rows × 8 elements as pairs, which takes half the shuffles, and converts them afterwards.
HWY_INLINE void PackEightsOfBF16(const uint8_t* const* rows, int64_t k, float* HWY_RESTRICT panel) {
  const F32 d;
  VF32 r0 = FoursOfRows(d, rows + 0, 2 * k);
  VF32 r1 = FoursOfRows(d, rows + 1, 2 * k);
  VF32 r2 = FoursOfRows(d, rows + 2, 2 * k);
  VF32 r3 = FoursOfRows(d, rows + 3, 2 * k);
  TransposeFours(d, r0, r1, r2, r3);
  StorePairsOfBF16(r0, panel);
  StorePairsOfBF16(r1, panel + 2 * kTileCols);
  StorePairsOfBF16(r2, panel + 4 * kTileCols);
  StorePairsOfBF16(r3, panel + 6 * kTileCols);
}

// One cache line of each of kLanes rows.
template <class Load>
HWY_INLINE void PackLine(const uint8_t* const* rows, int64_t k, float* HWY_RESTRICT panel) {
  constexpr int64_t kLine = 64 / sizeof(typename Load::Raw);
  if constexpr (std::is_same_v<Load, LoadBF16>) {
    for (int64_t i = 0; i < kLine; i += 8) PackEightsOfBF16(rows, k + i, panel + i * kTileCols);
  } else {
    for (int64_t i = 0; i < kLine; i += 4) PackFours<Load>(rows, k + i, panel + i * kTileCols);
  }
}
#endif

// Not into L1, where the panel in use lives.
HWY_INLINE void PrefetchToL2(const void* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p, 0, 2);
#endif
}

template <class Load>
void PackPanelOf(const uint8_t* const* rows /*[kTileCols]*/, DType dtype, int64_t depth,
                 [[maybe_unused]] int64_t next, float* HWY_RESTRICT panel) {
  constexpr int64_t kSize = sizeof(typename Load::Raw);
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  // A cache line of each row at a time: rows are often a multiple of 4 KB apart, so that the lines of all
  // kTileCols rows compete for the same few places in L1.
  constexpr int64_t kLine = 64 / kSize;
  for (; k + kLine <= depth; k += kLine) {
    for (int64_t i = 0; i < kTileCols; ++i) PrefetchToL2(rows[i] + k * kSize + next);
    PackLine<Load>(rows, k, panel + k * kTileCols);
    PackLine<Load>(rows + kLanes, k, panel + k * kTileCols + kLanes);
  }
  for (; k + 4 <= depth; k += 4) {
    PackFours<Load>(rows, k, panel + k * kTileCols);
    PackFours<Load>(rows + kLanes, k, panel + k * kTileCols + kLanes);
  }
#endif
  for (; k < depth; ++k) {
    float* const to = panel + k * kTileCols;
    for (int64_t i = 0; i < kTileCols; ++i) ConvertToFloat(rows[i] + k * kSize, dtype, 1, to + i);
  }
}

// panel[k][i] = float(row i, element k), for `rows` (at most kTileCols) rows of `depth` elements. Columns
// beyond `rows` repeat the last one: they are computed and thrown away, and unlike uninitialised memory they
// cost no slow denormals. `next` is the distance in bytes to what will be packed next, to fetch it early.
inline void PackPanel(const void* data, DType dtype, int64_t row_stride, int64_t rows, int64_t depth,
                      int64_t next, float* panel) {
  const uint8_t* pointers[kTileCols];
  const int64_t bytes = row_stride * static_cast<int64_t>(SizeOf(dtype));
  for (int64_t i = 0; i < kTileCols; ++i) {
    pointers[i] = static_cast<const uint8_t*>(data) + std::min(i, rows - 1) * bytes;
  }
  switch (dtype) {
    case DType::kBF16:
      return PackPanelOf<LoadBF16>(pointers, dtype, depth, next, panel);
    case DType::kF16:
      return PackPanelOf<LoadF16>(pointers, dtype, depth, next, panel);
    default:
      return PackPanelOf<LoadF32>(pointers, dtype, depth, next, panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

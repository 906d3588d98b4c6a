// AVX2 (Zen 1 to 3, Haswell and later). vpmaddubsw adds two products in 16 bits: with weights of 4 bits a
// pair is at most 2 · 15 · 127 = 3,810, so eight pairs can be added before they are widened to 32 bits. Wider
// weights come as two planes of 4 bits.
#include "kernels/int8/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace qwen_image {
namespace {

#define QWEN_IMAGE_TARGET __attribute__((target("avx2,fma")))
#define QWEN_IMAGE_INLINE QWEN_IMAGE_TARGET __attribute__((always_inline)) inline

constexpr int kRows = 6;
constexpr int kSteps = 8;  // fours of depth whose products are added in 16 bits

// Products of kStepCount fours of depth. Twelve sums, two registers of weights, one of activations and one
// for a product are all 16 registers: look at the assembly for spills after any change.
template <int kCount, int kStepCount>
QWEN_IMAGE_INLINE void MultiplySteps(const int8_t* a, const uint8_t* q, __m256i* sum0, __m256i* sum1) {
#pragma GCC unroll 8
  for (int k = 0; k < kStepCount; ++k) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 64 * k));
    const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 64 * k + 32));
#pragma GCC unroll 6
    for (int r = 0; r < kCount; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + 4 * (k * kRows + r), sizeof(four));
      const __m256i x = _mm256_set1_epi32(four);
      const __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
      sum0[r] = k == 0 ? p0 : _mm256_add_epi16(sum0[r], p0);
      sum1[r] = k == 0 ? p1 : _mm256_add_epi16(sum1[r], p1);
      // Without this g++ puts the additions in another order, as integers allow, for which it keeps all
      // products on the stack: less than half the speed.
      asm("" : "+x"(sum0[r]), "+x"(sum1[r]));
    }
  }
}

// Σ q·a of a group of kGroup, in 32 bits, stored to dot[kCount][16].
template <int kCount, int kGroup>
QWEN_IMAGE_INLINE void MultiplyGroup(const int8_t* a, const uint8_t* q, int32_t* dot) {
  const __m256i one = _mm256_set1_epi16(1);
  constexpr int kFours = kGroup / 4 < kSteps ? kGroup / 4 : kSteps;
  __m256i sum0[kCount], sum1[kCount];
  MultiplySteps<kCount, kFours>(a, q, sum0, sum1);
  __m256i* const to = reinterpret_cast<__m256i*>(dot);
#pragma GCC unroll 6
  for (int r = 0; r < kCount; ++r) {
    _mm256_store_si256(to + 2 * r, _mm256_madd_epi16(sum0[r], one));
    _mm256_store_si256(to + 2 * r + 1, _mm256_madd_epi16(sum1[r], one));
  }
  if constexpr (kGroup / 4 > kSteps) {
    static_assert(kGroup / 4 == 2 * kSteps);
    MultiplySteps<kCount, kSteps>(a + 4 * kSteps * kRows, q + 64 * kSteps, sum0, sum1);
#pragma GCC unroll 6
    for (int r = 0; r < kCount; ++r) {
      const __m256i low = _mm256_load_si256(to + 2 * r), high = _mm256_load_si256(to + 2 * r + 1);
      _mm256_store_si256(to + 2 * r, _mm256_add_epi32(low, _mm256_madd_epi16(sum0[r], one)));
      _mm256_store_si256(to + 2 * r + 1, _mm256_add_epi32(high, _mm256_madd_epi16(sum1[r], one)));
    }
  }
}

template <int kCount, int kGroup, int kPlanes>
QWEN_IMAGE_TARGET void Multiply(const Int8Tile& t, int panel) {
  const Int8Rows& x = t.x;
  const Int8Panel& w = t.w[panel];
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  alignas(32) int32_t dot[kCount * kInt8PanelCols];
  alignas(32) int32_t high[kPlanes == 2 ? kCount * kInt8PanelCols : 8];
  if (!t.add) {
    for (int i = 0; i < kCount * kInt8PanelCols; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  }
  NextActivations next(t, panel, kRows);
  for (int64_t g = 0; g < t.groups; ++g) {
    next.FetchShare();
    const int8_t* const a = x.a + g * kGroup * kRows;
    const uint8_t* const q = w.q + g * kGroup * kInt8PanelCols;
    MultiplyGroup<kCount, kGroup>(a, q, dot);
    if constexpr (kPlanes == 2) MultiplyGroup<kCount, kGroup>(a, q + w.plane_bytes, high);
    for (int half = 0; half < kInt8PanelCols; half += 8) {
      const __m256 scale = _mm256_load_ps(w.scales + g * kInt8PanelCols + half);
      const __m256 bias = _mm256_load_ps(w.biases + g * kInt8PanelCols + half);
      const __m256i start =
          w.starts ? _mm256_load_si256(reinterpret_cast<const __m256i*>(w.starts + g * kInt8PanelCols + half))
                   : _mm256_setzero_si256();
#pragma GCC unroll 6
      for (int r = 0; r < kCount; ++r) {
        const int at = r * kInt8PanelCols + half;
        __m256i d = _mm256_load_si256(reinterpret_cast<const __m256i*>(dot + at));
        if constexpr (kPlanes == 2) {
          const __m256i h = _mm256_load_si256(reinterpret_cast<const __m256i*>(high + at));
          d = _mm256_add_epi32(d, _mm256_slli_epi32(h, 4));
        }
        d = _mm256_add_epi32(d, start);
        const __m256 both = _mm256_mul_ps(scale, _mm256_broadcast_ss(x.scales + g * kRows + r));
        __m256 sum = _mm256_load_ps(sums + at);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d), both, sum);
        sum = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(x.sums + g * kRows + r), sum);
        _mm256_store_ps(sums + at, sum);
      }
    }
  }
}

template <int kCount, int kPlanes>
void MultiplyPanel(const Int8Tile& t, int panel) {
  if (t.group == 64) return Multiply<kCount, 64, kPlanes>(t, panel);
  if (t.group == 32) return Multiply<kCount, 32, kPlanes>(t, panel);
  Multiply<kCount, 16, kPlanes>(t, panel);
}

template <int kCount = kRows>
void MultiplyRows(const Int8Tile& t) {
  if constexpr (kCount > 1) {
    if (t.rows < kCount) return MultiplyRows<kCount - 1>(t);
  }
  for (int panel = 0; panel < t.panels; ++panel) {
    if (t.planes == 2) {
      MultiplyPanel<kCount, 2>(t, panel);
    } else {
      MultiplyPanel<kCount, 1>(t, panel);
    }
  }
}

#undef QWEN_IMAGE_INLINE
#undef QWEN_IMAGE_TARGET

}  // namespace

const Int8Kernel kInt8Avx2 = {"AVX2", Int8Weights::kNibbles, kRows, MultiplyRows<>, false};

}  // namespace qwen_image
#endif

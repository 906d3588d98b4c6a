// AVX-512 with VNNI (Zen 4, Ice Lake and later): a panel's 16 columns are one register of sums.
#include "kernels/int8/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace qwen_image {
namespace {

#define QWEN_IMAGE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

constexpr int kRows = 12;

struct Four {
  int8_t values[4];
};

// dot[p][r] += four activations · weights[p], by hand: g++ 12 makes two instructions and two moves of
// _mm512_dpbusd_epi32 with _mm512_set1_epi32.
template <int kPanels, int kCount>
QWEN_IMAGE_TARGET __attribute__((always_inline)) inline void Dot(const int8_t* activations,
                                                                 const __m512i (&weights)[kPanels], int r,
                                                                 __m512i (&dot)[kPanels][kCount]) {
  const Four& four = *reinterpret_cast<const Four*>(activations);
  if constexpr (kPanels == 1) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(dot[0][r]) : "v"(weights[0]), "m"(four));
  } else {
    __m512i broadcast;
    asm("vpbroadcastd %1, %0" : "=v"(broadcast) : "m"(four));
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
      asm("vpdpbusd %2, %1, %0" : "+v"(dot[p][r]) : "v"(weights[p]), "v"(broadcast));
  }
}

// Several panels at once share the activations that are loaded. The dot products of two panels take 24 of the
// 32 registers, so their sums wait in memory.
template <int kCount, int kPanels>
QWEN_IMAGE_TARGET void Multiply(const Int8Tile& tile, int panel) {
  // A copy: stores of vectors may alias anything, and would have all of it read again.
  const Int8Tile t = tile;
  Int8Panel w[kPanels];
  for (int p = 0; p < kPanels; ++p) w[p] = t.w[panel + p];
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  const int8_t* a = t.x.a;
  NextActivations next(t, panel, kRows);
  for (int64_t i = 0; !t.add && i < kPanels * kRows * kInt8PanelCols; i += kInt8PanelCols)
    _mm512_store_ps(sums + i, _mm512_setzero_ps());
  for (int64_t g = 0; g < t.groups; ++g) {
    for (int p = 0; p < kPanels; ++p) next.FetchShare();
    __m512i dot[kPanels][kCount];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const __m512i start =
          w[p].starts ? _mm512_load_si512(w[p].starts + g * kInt8PanelCols) : _mm512_setzero_si512();
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) dot[p][r] = start;
    }
    for (int k = 0; k < t.group; k += 4) {
      __m512i weights[kPanels];
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        weights[p] = _mm512_load_si512(w[p].q);
        w[p].q += 4 * kInt8PanelCols;
      }
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) Dot(a + 4 * r, weights, r, dot);
      a += 4 * kRows;
    }
    // Without this g++ keeps a second copy of all sums on the stack.
    asm("" : : : "memory");
    const float* const x_scales = t.x.scales + g * kRows;
    const float* const x_sums = t.x.sums + g * kRows;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = _mm512_load_ps(w[p].scales + g * kInt8PanelCols);
      const __m512 bias = _mm512_load_ps(w[p].biases + g * kInt8PanelCols);
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) {
        float* const to = sums + (p * kRows + r) * kInt8PanelCols;
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[r]));
        // Not _mm512_cvtepi32_ps, which draws a false warning about an uninitialised value from g++.
        const auto value =
            reinterpret_cast<__m512>(__builtin_convertvector(reinterpret_cast<__v16si>(dot[p][r]), __v16sf));
        const __m512 sum = _mm512_fmadd_ps(value, both, _mm512_load_ps(to));
        _mm512_store_ps(to, _mm512_fmadd_ps(bias, _mm512_set1_ps(x_sums[r]), sum));
      }
    }
  }
}

template <int kCount = kRows>
void MultiplyRows(const Int8Tile& t) {
  if constexpr (kCount > 1) {
    if (t.rows < kCount) return MultiplyRows<kCount - 1>(t);
  }
  int panel = 0;
  for (; panel + 1 < t.panels; panel += 2) Multiply<kCount, 2>(t, panel);
  if (panel < t.panels) Multiply<kCount, 1>(t, panel);
}

#undef QWEN_IMAGE_TARGET

}  // namespace

const Int8Kernel kInt8Avx512Vnni = {"AVX-512 VNNI", Int8Weights::kUnsigned, kRows, MultiplyRows<>, true};

}  // namespace qwen_image
#endif

// AVX-512 with VNNI (Zen 4, Ice Lake and later): a panel's 16 columns are one register of sums, and the four
// activations of a row come as a broadcast operand of the dot product itself.
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

// 2 · kCount sums, the weights and their scales fit the 32 registers.
template <int kCount>
QWEN_IMAGE_TARGET void Multiply(const Int8Rows& x, const Int8Panel& w, int64_t groups, int group, bool add,
                                float* sums) {
  const int8_t* a = x.a;
  const uint8_t* q = w.q;
  __m512 total[kCount];
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) {
    total[r] = add ? _mm512_load_ps(sums + r * kInt8PanelCols) : _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    __m512i dot[kCount];
#pragma GCC unroll 12
    for (int r = 0; r < kCount; ++r) dot[r] = _mm512_setzero_si512();
    for (int k = 0; k < group; k += 4) {
      const __m512i weights = _mm512_load_si512(q);
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) {
        // What _mm512_dpbusd_epi32 with _mm512_set1_epi32 stands for; g++ 12 makes two instructions and two
        // moves of that.
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(dot[r])
            : "v"(weights), "m"(*reinterpret_cast<const Four*>(a + 4 * r)));
      }
      q += 64;
      a += 4 * kRows;
    }
    const __m512 scale = _mm512_load_ps(w.scales + g * kInt8PanelCols);
    const __m512 bias = _mm512_load_ps(w.biases + g * kInt8PanelCols);
#pragma GCC unroll 12
    for (int r = 0; r < kCount; ++r) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[g * kRows + r]));
      // Not _mm512_cvtepi32_ps, which draws a false warning about an uninitialised value from g++.
      const auto value =
          reinterpret_cast<__m512>(__builtin_convertvector(reinterpret_cast<__v16si>(dot[r]), __v16sf));
      total[r] = _mm512_fmadd_ps(value, both, total[r]);
      total[r] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x.sums[g * kRows + r]), total[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) _mm512_store_ps(sums + r * kInt8PanelCols, total[r]);
}

template <int kCount = kRows>
void MultiplyRows(const Int8Rows& x, const Int8Panel& w, int64_t groups, int group, int planes, int rows,
                  bool add, float* sums) {
  if constexpr (kCount > 1) {
    if (rows < kCount) return MultiplyRows<kCount - 1>(x, w, groups, group, planes, rows, add, sums);
  }
  Multiply<kCount>(x, w, groups, group, add, sums);
}

template <int kCount>
QWEN_IMAGE_TARGET void Dot(const Int8Dots& d) {
  int32_t* to = d.sums;
  for (int64_t panel = 0; panel < d.panels; ++panel) {
    const int8_t* a = d.a;
    const uint8_t* q = d.q + panel * d.panel_bytes;
    for (int64_t g = 0; g < d.groups; ++g, to += kRows * kInt8PanelCols) {
      __m512i dot[kCount];
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) dot[r] = _mm512_set1_epi32(d.start[g * kRows + r]);
      for (int64_t k = 0; k < d.group; k += 4) {
        const __m512i weights = _mm512_load_si512(q);
#pragma GCC unroll 12
        for (int r = 0; r < kCount; ++r) {
          asm("vpdpbusd %2%{1to16%}, %1, %0"
              : "+v"(dot[r])
              : "v"(weights), "m"(*reinterpret_cast<const Four*>(a + 4 * r)));
        }
        q += 64;
        a += 4 * kRows;
      }
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) _mm512_store_si512(to + r * kInt8PanelCols, dot[r]);
    }
  }
}

template <int kCount = kRows>
void DotRows(const Int8Dots& d) {
  if constexpr (kCount > 1) {
    if (d.rows < kCount) return DotRows<kCount - 1>(d);
  }
  Dot<kCount>(d);
}

#undef QWEN_IMAGE_TARGET

}  // namespace

const Int8Kernel kInt8Avx512Vnni = {"AVX-512 VNNI", Int8Weights::kUnsigned, kRows, MultiplyRows<>, DotRows<>};

}  // namespace qwen_image
#endif

// The three small transforms of Winograd's F(4 × 4, 3 × 3) convolution, compiled once per instruction set.
//
// A tile of 4 outputs of a 3-tap filter is a product of polynomials; evaluated at the points 0, ±p, ±q and ∞
// it takes 6 multiplications instead of 12, in two dimensions 36 instead of 144:
//   y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A
// The points decide the rounding error. ± 3/4 and ± 3/2 give a quarter of the error (NMSE) of the usual
// ± 1 and ± 2, and their powers are exact in floats.
//
// After nearest-neighbour upsampling, the 6 inputs of a tile are a, b, b, c, c, e. Then the rows of Bᵀ for
// +q and −q are multiples of each other, and with p = 1 the row for −1 is zero: 4 inputs and 5 products
// remain (25 instead of 36 in two dimensions), and the large picture is never formed.
// No include guard of the usual kind: see Highway's foreach_target.h.
#if defined(QWEN_IMAGE_KERNELS_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_WINOGRAD_INL_H_
#undef QWEN_IMAGE_KERNELS_WINOGRAD_INL_H_
#else
#define QWEN_IMAGE_KERNELS_WINOGRAD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE V Times(float factor, V v) {
  return hn::Mul(hn::Set(hn::DFromV<V>(), factor), v);
}
template <class V>
HWY_INLINE V PlusTimes(V sum, float factor, V v) {
  return hn::MulAdd(hn::Set(hn::DFromV<V>(), factor), v, sum);
}

// The convolution of a picture as it is.
struct PlainTransform {
  static constexpr int kInputs = 6;    // a side of the window of a tile
  static constexpr int kStep = 4;      // inputs from one tile to the next
  static constexpr int kFactors = 6;   // a side of the transformed inputs
  static constexpr int kProducts = 6;  // a side of the transformed filter
  static constexpr int FactorOf(int product) { return product; }

  static constexpr float p = 0.75f, q = 1.5f, P = p * p, Q = q * q;

  template <class V>
  static HWY_INLINE void Input(const V (&d)[kInputs], V (&v)[kFactors]) {
    const V even_p = PlusTimes(d[4], -Q, d[2]), odd_p = PlusTimes(d[3], -Q, d[1]);
    const V even_q = PlusTimes(d[4], -P, d[2]), odd_q = PlusTimes(d[3], -P, d[1]);
    v[0] = PlusTimes(PlusTimes(d[4], -(P + Q), d[2]), P * Q, d[0]);
    v[1] = PlusTimes(even_p, p, odd_p);
    v[2] = PlusTimes(even_p, -p, odd_p);
    v[3] = PlusTimes(even_q, q, odd_q);
    v[4] = PlusTimes(even_q, -q, odd_q);
    v[5] = PlusTimes(PlusTimes(d[5], -(P + Q), d[3]), P * Q, d[1]);
  }

  template <class V>
  static HWY_INLINE void Filter(const V (&g)[3], V (&u)[kProducts]) {
    constexpr float kP = 1 / (2 * P * (P - Q)), kQ = 1 / (2 * Q * (Q - P));
    const V even_p = PlusTimes(g[0], P, g[2]), even_q = PlusTimes(g[0], Q, g[2]);
    u[0] = Times(1 / (P * Q), g[0]);
    u[1] = Times(kP, PlusTimes(even_p, p, g[1]));
    u[2] = Times(kP, PlusTimes(even_p, -p, g[1]));
    u[3] = Times(kQ, PlusTimes(even_q, q, g[1]));
    u[4] = Times(kQ, PlusTimes(even_q, -q, g[1]));
    u[5] = g[2];
  }

  template <class V>
  static HWY_INLINE void Output(const V (&m)[kProducts], V (&y)[4]) {
    const V sum_p = hn::Add(m[1], m[2]), difference_p = hn::Sub(m[1], m[2]);
    const V sum_q = hn::Add(m[3], m[4]), difference_q = hn::Sub(m[3], m[4]);
    y[0] = hn::Add(m[0], hn::Add(sum_p, sum_q));
    y[1] = PlusTimes(Times(p, difference_p), q, difference_q);
    y[2] = PlusTimes(Times(P, sum_p), Q, sum_q);
    y[3] = PlusTimes(PlusTimes(m[5], p * P, difference_p), q * Q, difference_q);
  }
};

// The convolution of a picture that is twice as large in both directions as the one at hand.
struct UpsamplingTransform {
  static constexpr int kInputs = 4;
  static constexpr int kStep = 2;
  static constexpr int kFactors = 4;
  static constexpr int kProducts = 5;  // for 0, 1, q, −q, ∞
  static constexpr int FactorOf(int product) { return product - (product > 2); }

  static constexpr float q = 1.75f, Q = q * q;

  template <class V>
  static HWY_INLINE void Input(const V (&d)[kInputs], V (&v)[kFactors]) {
    v[0] = PlusTimes(PlusTimes(d[2], -(1 + Q), d[1]), Q, d[0]);
    v[1] = PlusTimes(d[2], -Q, d[1]);
    v[2] = hn::Sub(d[2], d[1]);
    v[3] = PlusTimes(PlusTimes(d[3], -(1 + Q), d[2]), Q, d[1]);
  }

  // The factors 2, 1 + q and 1 − q belong to the inputs' transform.
  template <class V>
  static HWY_INLINE void Filter(const V (&g)[3], V (&u)[kProducts]) {
    constexpr float kOne = 2 / (2 * (1 - Q)), kQ = 1 / (2 * Q * (Q - 1));
    const V even_q = PlusTimes(g[0], Q, g[2]);
    u[0] = Times(1 / Q, g[0]);
    u[1] = Times(kOne, hn::Add(hn::Add(g[0], g[2]), g[1]));
    u[2] = Times(kQ * (1 + q), PlusTimes(even_q, q, g[1]));
    u[3] = Times(kQ * (1 - q), PlusTimes(even_q, -q, g[1]));
    u[4] = g[2];
  }

  template <class V>
  static HWY_INLINE void Output(const V (&m)[kProducts], V (&y)[4]) {
    const V sum = hn::Add(m[2], m[3]), difference = hn::Sub(m[2], m[3]);
    y[0] = hn::Add(m[0], hn::Add(m[1], sum));
    y[1] = PlusTimes(m[1], q, difference);
    y[2] = PlusTimes(m[1], Q, sum);
    y[3] = hn::Add(m[4], PlusTimes(m[1], q * Q, difference));
  }
};

// out = T in Tᵀ for a transform T of kFrom numbers to kTo: all columns, then all rows. load(row, column) and
// store(row, column, vector) are called once for every element.
template <int kFrom, int kTo, class V, class Transform, class Load, class Store>
HWY_INLINE void TransformSquare(const Transform& transform, const Load& load, const Store& store) {
  V half[kTo][kFrom];
  HWY_UNROLL(6) for (int j = 0; j < kFrom; ++j) {
    V from[kFrom], to[kTo];
    HWY_UNROLL(6) for (int i = 0; i < kFrom; ++i) from[i] = load(i, j);
    transform(from, to);
    HWY_UNROLL(6) for (int i = 0; i < kTo; ++i) half[i][j] = to[i];
  }
  HWY_UNROLL(6) for (int i = 0; i < kTo; ++i) {
    V to[kTo];
    transform(half[i], to);
    HWY_UNROLL(6) for (int j = 0; j < kTo; ++j) store(i, j, to[j]);
  }
}

// Sums a[r][0…depth) · b[0…depth)[c] in that order for kRows × 2 vectors and stores them to
// m[r · m_stride + c], or adds them to what is there. As Tile in gemm-inl.h, but the rows of `a` lie densely:
// at a stride of 1 KB they would use only some of the sets of L2.
template <int kRows, class D>
HWY_INLINE void DenseTile(D d, const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT b,
                          int64_t depth, bool add, float* HWY_RESTRICT m, int64_t m_stride) {
  constexpr int64_t kWidth = hn::MaxLanes(D());
  hn::Vec<D> sum0[kRows], sum1[kRows];
  HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = hn::LoadU(d, b + kWidth);
    HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * a_stride]);
      sum0[r] = hn::MulAdd(x, b0, sum0[r]);
      sum1[r] = hn::MulAdd(x, b1, sum1[r]);
    }
    ++a;
    b += 2 * kWidth;
  }
  if (add) {
    HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) {
      sum0[r] = hn::Add(sum0[r], hn::LoadU(d, m + r * m_stride));
      sum1[r] = hn::Add(sum1[r], hn::LoadU(d, m + r * m_stride + kWidth));
    }
  }
  HWY_UNROLL(12) for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum0[r], d, m + r * m_stride);
    hn::StoreU(sum1[r], d, m + r * m_stride + kWidth);
  }
}

// The same for a number of rows known at run time, 1…kRows.
template <int kRows, class D>
HWY_INLINE void DenseTileOfRows(D d, int64_t rows, const float* a, int64_t a_stride, const float* b,
                                int64_t depth, bool add, float* m, int64_t m_stride) {
  if constexpr (kRows == 1) {
    DenseTile<1>(d, a, a_stride, b, depth, add, m, m_stride);
  } else if (rows == kRows) {
    DenseTile<kRows>(d, a, a_stride, b, depth, add, m, m_stride);
  } else {
    DenseTileOfRows<kRows - 1>(d, rows, a, a_stride, b, depth, add, m, m_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

// Vector versions of exp and of the activation functions, compiled once per instruction set.
#if defined(QWEN_IMAGE_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QWEN_IMAGE_KERNELS_MATH_INL_H_
#undef QWEN_IMAGE_KERNELS_MATH_INL_H_
#else
#define QWEN_IMAGE_KERNELS_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x ≤ about 0, to 1 ulp; below the smallest normal result (x < -87.3) it is 0. NaN stays NaN.
// Highway's own Exp (hwy/contrib/math) handles all x with a two-step scaling that softmax and the sigmoids do
// not need; the reduction and the polynomial are the same.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const V nf = hn::ConvertTo(d, n);
  // ln 2 in two parts: n · (the first) is exact.
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(nf, hn::Set(d, 1.428606765330187045e-6f), r);
  // exp(r) = 1 + r + r² · p(r) on ±ln(2)/2
  V p = hn::MulAdd(r, hn::Set(d, 0.000198527617612853646278381f), hn::Set(d, 0.00139304355252534151077271f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.00833336077630519866943359f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.0416664853692054748535156f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.166666671633720397949219f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.5f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  // Below the limit `power` is garbage. The comparison is false for NaN, so that NaN passes.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), hn::Mul(p, power));
}

// 2^x for x ≤ 0, to 1 ulp; below the smallest normal result (x < -126) it is 0. NaN stays NaN. Cheaper than
// ExpNonPositive: no reduction by parts of ln 2, and the rounding leaves the exponent where it is needed.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2NonPositive(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  // Adding 1.5 · 2^23 rounds to a whole number n, which then is in the lowest bits; so is the exponent's
  // bias.
  const V shift = hn::Set(d, 12582912.0f + 127.0f);
  const V rounded = hn::Add(x, shift);
  const V f = hn::Sub(x, hn::Sub(rounded, shift));
  // 2^f on ±1/2, relative error 2e-9 before rounding, exactly 1 at 0.
  V p = hn::MulAdd(f, hn::Set(d, 0.0001535334304207936f), hn::Set(d, 0.0013398872688412666f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.009618437848985195f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.055503323674201965f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.24022647738456726f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, rounded)));
  // Below the limit `power` is garbage. The comparison is false for NaN, so that NaN passes.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

// x / (1 + exp(-z)), that is x · sigmoid(z), without overflow: for huge negative z it is x · 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MulSigmoid(D d, V x, V z) {
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(z)));
  const V one = hn::Set(d, 1.0f);
  const V numerator = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluOf(D d, V x) {
  return MulSigmoid(d, x, x);
}

// 0.5 · (1 + tanh(u)) = sigmoid(2u), which loses nothing where 1 + tanh(u) cancels.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanhOf(D d, V x) {
  const V x2 = hn::Mul(x, x);
  const V inner = hn::MulAdd(x2, hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  const V z = hn::Mul(hn::Mul(x, hn::Set(d, 1.5957691216057308f)), inner);  // 2 · √(2/π) · (x + 0.044715 x³)
  return MulSigmoid(d, x, z);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#endif

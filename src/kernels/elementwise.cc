#include <cmath>
#include <numbers>

#include "kernels/kernels.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/map-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
void ModulateRows(const float* x, int64_t rows, int64_t cols, const float* scale, const float* shift,
                  float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    Map(
        cols, y + r * cols, [](VF32 v, VF32 mul, VF32 add) HWY_ATTR { return Modulated(v, mul, add); },
        x + r * cols, scale, shift);
  }
}

void AddGatedRows(const float* x, int64_t rows, int64_t cols, const float* gate, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = y + r * cols;
    Map(
        cols, row, [](VF32 v, VF32 g, VF32 sum) HWY_ATTR { return hn::MulAdd(g, v, sum); }, x + r * cols,
        gate, static_cast<const float*>(row));
  }
}

void AddRange(const float* a, const float* b, int64_t count, float* y) {
  Map(
      count, y, [](VF32 u, VF32 v) HWY_ATTR { return hn::Add(u, v); }, a, b);
}

void SiluRange(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](VF32 v) HWY_ATTR { return SiluOf(F32(), v); }, x);
}

void SiluMulRange(const float* gate, const float* up, int64_t count, float* y) {
  Map(
      count, y, [](VF32 g, VF32 u) HWY_ATTR { return hn::Mul(SiluOf(F32(), g), u); }, gate, up);
}

void GeluTanhRange(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](VF32 v) HWY_ATTR { return GeluTanhOf(F32(), v); }, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(ModulateRows);
HWY_EXPORT(AddGatedRows);
HWY_EXPORT(AddRange);
HWY_EXPORT(SiluRange);
HWY_EXPORT(SiluMulRange);
HWY_EXPORT(GeluTanhRange);

namespace {
constexpr int64_t kFloat = sizeof(float);
}

void Modulate(const float* x, int64_t rows, int64_t cols, const float* scale, const float* shift, float* y,
              ThreadPool& pool) {
  ForPieces(rows, 2 * cols * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ModulateRows)(x + begin * cols, end - begin, cols, scale, shift, y + begin * cols);
  });
}

void AddGated(const float* x, int64_t rows, int64_t cols, const float* gate, float* y, ThreadPool& pool) {
  ForPieces(rows, 2 * cols * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddGatedRows)(x + begin * cols, end - begin, cols, gate, y + begin * cols);
  });
}

void Add(const float* a, const float* b, int64_t count, float* y, ThreadPool& pool) {
  ForPieces(count, 3 * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddRange)(a + begin, b + begin, end - begin, y + begin);
  });
}

void Silu(const float* x, int64_t count, float* y, ThreadPool& pool) {
  ForPieces(count, 2 * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SiluRange)(x + begin, end - begin, y + begin);
  });
}

void SiluMul(const float* gate, const float* up, int64_t count, float* y, ThreadPool& pool) {
  ForPieces(count, 3 * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SiluMulRange)(gate + begin, up + begin, end - begin, y + begin);
  });
}

void GeluTanh(const float* x, int64_t count, float* y, ThreadPool& pool) {
  ForPieces(count, 2 * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GeluTanhRange)(x + begin, end - begin, y + begin);
  });
}

void Gelu(const float* x, int64_t count, float* y, ThreadPool& pool) {
  ForPieces(count, 2 * kFloat, pool, [&](int64_t begin, int64_t end) {
    // 1 + erf(z) = erfc(-z), which loses nothing where the sum cancels.
    for (int64_t i = begin; i < end; ++i)
      y[i] = 0.5f * x[i] * std::erfc(x[i] * -(1.0f / std::numbers::sqrt2_v<float>));
  });
}

}  // namespace qwen_image
#endif

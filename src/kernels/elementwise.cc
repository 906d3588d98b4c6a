#include <cmath>
#include <numbers>

#include "kernels/interface.h"
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
void ModulateRows(ConstView x, const float* scale, const float* shift, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    Map(
        x.cols, y.row(r), [](VF32 v, VF32 mul, VF32 add) HWY_ATTR { return Modulated(v, mul, add); },
        x.row(r), scale, shift);
  }
}

void AddGatedRows(ConstView x, const float* gate, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = y.row(r);
    Map(
        x.cols, row, [](VF32 v, VF32 g, VF32 sum) HWY_ATTR { return hn::MulAdd(g, v, sum); }, x.row(r), gate,
        static_cast<const float*>(row));
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

// Calls range(in..., count, y) for runs of consecutive elements: pieces of all memory where no view has gaps
// (one long row is shared by all threads as well), and else row by row.
template <class Range, class... In>
void ForRanges(View y, ThreadPool& pool, const Range& range, In... in) {
  constexpr int64_t kBytes = (1 + static_cast<int64_t>(sizeof...(In))) * kFloat;
  if (y.dense() && (in.dense() && ...)) {
    ForPieces(y.size(), kBytes, pool,
              [&](int64_t begin, int64_t end) { range((in.data + begin)..., end - begin, y.data + begin); });
  } else {
    ForPieces(y.rows, kBytes * y.cols, pool, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) range(in.row(r)..., y.cols, y.row(r));
    });
  }
}

}  // namespace

void Modulate(ConstView x, const float* scale, const float* shift, View y, ThreadPool& pool) {
  ForPieces(x.rows, 2 * x.cols * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ModulateRows)(x.Rows(begin, end - begin), scale, shift, y.Rows(begin, end - begin));
  });
}

void AddGated(ConstView x, const float* gate, View y, ThreadPool& pool) {
  ForPieces(x.rows, 2 * x.cols * kFloat, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddGatedRows)(x.Rows(begin, end - begin), gate, y.Rows(begin, end - begin));
  });
}

void Add(ConstView a, ConstView b, View y, ThreadPool& pool) {
  const auto range = [](const float* u, const float* v, int64_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(AddRange)(u, v, count, to);
  };
  ForRanges(y, pool, range, a, b);
}

void Silu(ConstView x, View y, ThreadPool& pool) {
  const auto range = [](const float* from, int64_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(SiluRange)(from, count, to);
  };
  ForRanges(y, pool, range, x);
}

void SiluMul(ConstView gate, ConstView up, View y, ThreadPool& pool) {
  const auto range = [](const float* g, const float* u, int64_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(SiluMulRange)(g, u, count, to);
  };
  ForRanges(y, pool, range, gate, up);
}

void GeluTanh(ConstView x, View y, ThreadPool& pool) {
  const auto range = [](const float* from, int64_t count, float* to) {
    HWY_DYNAMIC_DISPATCH(GeluTanhRange)(from, count, to);
  };
  ForRanges(y, pool, range, x);
}

void Gelu(ConstView x, View y, ThreadPool& pool) {
  const auto range = [](const float* from, int64_t count, float* to) {
    // 1 + erf(z) = erfc(-z), which loses nothing where the sum cancels.
    for (int64_t i = 0; i < count; ++i)
      to[i] = 0.5f * from[i] * std::erfc(from[i] * -(1.0f / std::numbers::sqrt2_v<float>));
  };
  ForRanges(y, pool, range, x);
}

}  // namespace qwen_image
#endif

#include "kernels/int8/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/int8/fours-inl.h"
#include "kernels/int8/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
static_assert(kLanes <= 16);  // of a float: groups are 16, 32 or 64 long, so vectors always fit
constexpr float kLargest = 127.0f;

// kLanes groups, or the last ones of a row. The numbers are those of each group.
struct Groups {
  HWY_ALIGN float scales[kLanes];  // 0 where all values are so small that their inverse would overflow
  HWY_ALIGN float inverses[kLanes];
  HWY_ALIGN float sums[kLanes];    // Σ a
  HWY_ALIGN float powers[kLanes];  // Σ(x · inverse)²
  HWY_ALIGN float errors[kLanes];  // Σ(x · inverse − a)²
};

HWY_INLINE void ScaleGroups(const float* x, int count, int group, Groups& groups) {
  const F32 d;
  HWY_ALIGN Partial largest = {};
  for (int g = 0; g < count; ++g) {
    VF32 most = hn::Abs(hn::LoadU(d, x + g * group));
    for (int i = kLanes; i < group; i += kLanes)
      most = hn::Max(most, hn::Abs(hn::LoadU(d, x + g * group + i)));
    hn::Store(most, d, largest[g]);
  }
  const VF32 most = MaxEach(largest);
  const auto tiny = hn::Lt(most, hn::Set(d, kLargest / std::numeric_limits<float>::max()));
  const VF32 limit = hn::Set(d, kLargest);
  hn::Store(hn::IfThenZeroElse(tiny, hn::Div(most, limit)), d, groups.scales);
  hn::Store(hn::IfThenZeroElse(tiny, hn::Div(limit, most)), d, groups.inverses);
}

// a = round(x · inverse). Powers and errors only if they are measured.
template <bool kMeasured>
HWY_INLINE void RoundGroups(const float* x, int count, int group, int8_t* a, Groups& groups) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint8_t, F32> d8;
  // Added to a number below 2^22, it leaves no bits behind the point, and the whole number in the lowest
  // ones.
  const VF32 shift = hn::Set(d, 12582912.0f);
  HWY_ALIGN Partial sums = {};
  HWY_ALIGN Partial powers, errors;
  if constexpr (kMeasured) std::memset(powers, 0, sizeof(powers)), std::memset(errors, 0, sizeof(errors));
  for (int g = 0; g < count; ++g) {
    const VF32 factor = hn::Set(d, groups.inverses[g]);
    VF32 sum = hn::Zero(d), power = hn::Zero(d), error = hn::Zero(d);
    for (int i = g * group; i < (g + 1) * group; i += kLanes) {
      const VF32 scaled = hn::Mul(hn::LoadU(d, x + i), factor);
      const VF32 shifted = hn::Add(scaled, shift);
      const VF32 rounded = hn::Sub(shifted, shift);
      sum = hn::Add(sum, rounded);
      if constexpr (kMeasured) {
        const VF32 off = hn::Sub(scaled, rounded);
        power = hn::MulAdd(scaled, scaled, power);
        error = hn::MulAdd(off, off, error);
      }
      hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, shifted)), d8, reinterpret_cast<uint8_t*>(a + i));
    }
    hn::Store(sum, d, sums[g]);
    if constexpr (kMeasured) {
      hn::Store(power, d, powers[g]);
      hn::Store(error, d, errors[g]);
    }
  }
  hn::Store(SumEach(sums), d, groups.sums);
  if constexpr (kMeasured) {
    hn::Store(SumEach(powers), d, groups.powers);
    hn::Store(SumEach(errors), d, groups.errors);
  }
}

// Whether the median of the groups' Σx² is below a number, which is cheaper to tell than the median.
HWY_INLINE bool MedianIsBelow(const double* powers, int64_t groups, double number) {
  int64_t below = 0;
  for (int64_t g = 0; g < groups; ++g) below += powers[g] < number;
  return below > groups / 2;
}

bool QuantizeRowTo(const float* x, int64_t depth, int group, const QuantizationError& limits,
                   const Int8Row& to, double* powers /*[depth / group]*/) {
  const int64_t all = depth / group;
  double power = 0, error = 0;
  for (int64_t first = 0; first < all; first += kLanes) {
    const auto count = static_cast<int>(std::min<int64_t>(kLanes, all - first));
    Groups groups;
    ScaleGroups(x + first * group, count, group, groups);
    RoundGroups<true>(x + first * group, count, group, to.a + first * group, groups);
    for (int g = 0; g < count; ++g) {
      const double square = static_cast<double>(groups.scales[g]) * groups.scales[g];
      powers[first + g] = square * groups.powers[g];
      power += powers[first + g];  // NaN where x has NaN or infinity
      error += square * groups.errors[g];
      to.scales[(first + g) * to.tile_rows + to.row] = groups.scales[g];
      to.sums[(first + g) * to.tile_rows + to.row] = groups.scales[g] * groups.sums[g];
    }
  }
  if (std::isnan(power)) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t g = 0; g < all; ++g) {
      to.scales[g * to.tile_rows + to.row] = to.sums[g * to.tile_rows + to.row] = kNan;
    }
    return true;
  }
  if (error == 0) return true;
  if (error > limits.of_row * power) return false;
  return !MedianIsBelow(powers, all, error / (limits.of_typical * static_cast<double>(all)));
}

void QuantizeShortRowsTo(const float* x, int64_t rows, int64_t depth, int group, const Int8Row& to) {
  const int64_t of_row = depth / group, all = rows * of_row;
  for (int64_t first = 0; first < all; first += kLanes) {
    const auto count = static_cast<int>(std::min<int64_t>(kLanes, all - first));
    Groups groups;
    ScaleGroups(x + first * group, count, group, groups);
    RoundGroups<false>(x + first * group, count, group, to.a + first * group, groups);
    for (int g = 0; g < count; ++g) {
      const int64_t row = (first + g) / of_row, at = (first + g) % of_row * to.tile_rows + to.row + row;
      const float non_finite = groups.sums[g] - groups.sums[g];  // 0 or NaN
      to.scales[at] = groups.scales[g] + non_finite;
      to.sums[at] = groups.scales[g] * groups.sums[g];
    }
  }
}

void InterleaveRowsTo(const int8_t* bytes, int64_t rows, int64_t depth, const Int8Row& first) {
  InterleaveFours(bytes, depth, rows, depth, first.tile_rows, first.a + 4 * first.row);
}

void SubtractQuantizedFrom(const float* x, int64_t depth, int group, const Int8Row& q, float* rest) {
  const hn::CappedTag<float, 4> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  constexpr int64_t kWidth = hn::MaxLanes(d);
  for (int64_t g = 0; g < depth / group; ++g) {
    const auto scale = hn::Set(d, q.scales[g * q.tile_rows + q.row]);
    for (int64_t k = g * group; k < (g + 1) * group; k += kWidth) {
      const auto a = hn::LoadU(d8, q.a + k / 4 * 4 * q.tile_rows + 4 * q.row + k % 4);
      hn::StoreU(hn::NegMulAdd(scale, hn::ConvertTo(d, hn::PromoteTo(di, a)), hn::LoadU(d, x + k)), d,
                 rest + k);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(QuantizeRowTo);
HWY_EXPORT(QuantizeShortRowsTo);
HWY_EXPORT(InterleaveRowsTo);
HWY_EXPORT(SubtractQuantizedFrom);

bool QuantizeRow(const float* x, int64_t depth, int group, const QuantizationError& limits,
                 const Int8Row& to) {
  thread_local std::vector<double> powers;
  powers.resize(static_cast<size_t>(depth / group));
  return HWY_DYNAMIC_DISPATCH(QuantizeRowTo)(x, depth, group, limits, to, powers.data());
}

void QuantizeShortRows(const float* x, int64_t rows, int64_t depth, int group, const Int8Row& first) {
  HWY_DYNAMIC_DISPATCH(QuantizeShortRowsTo)(x, rows, depth, group, first);
}

void InterleaveRows(const int8_t* rows_of_bytes, int64_t rows, int64_t depth, const Int8Row& first) {
  HWY_DYNAMIC_DISPATCH(InterleaveRowsTo)(rows_of_bytes, rows, depth, first);
}

void SubtractQuantized(const float* x, int64_t depth, int group, const Int8Row& tile, float* rest) {
  HWY_DYNAMIC_DISPATCH(SubtractQuantizedFrom)(x, depth, group, tile, rest);
}

}  // namespace qwen_image
#endif

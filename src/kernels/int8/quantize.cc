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

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Groups are 16, 32 or 64 long, so vectors of up to 16 floats always fit.
using F32 = hn::CappedTag<float, 16>;
using VF32 = hn::Vec<F32>;
constexpr int kLanes = hn::MaxLanes(F32());
constexpr int kMaxGroup = 64;
constexpr float kLargest = 127.0f;

HWY_INLINE float LargestMagnitude(const float* x, int group) {
  const F32 d;
  VF32 largest = hn::Zero(d);
  for (int i = 0; i < group; i += kLanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + i)));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// a = round(x · inverse); *power and *error are Σ(x · inverse)² and Σ(x · inverse − a)². Returns Σ a.
HWY_INLINE int32_t QuantizeGroup(const float* x, int group, float inverse, int8_t* a, float* power,
                                 float* error) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<int8_t, F32> d8;
  const VF32 factor = hn::Set(d, inverse);
  VF32 squares = hn::Zero(d), errors = hn::Zero(d);
  auto sum = hn::Zero(di);
  for (int i = 0; i < group; i += kLanes) {
    const VF32 scaled = hn::Mul(hn::LoadU(d, x + i), factor);
    const auto rounded = hn::NearestInt(scaled);
    const VF32 off = hn::Sub(scaled, hn::ConvertTo(d, rounded));
    squares = hn::MulAdd(scaled, scaled, squares);
    errors = hn::MulAdd(off, off, errors);
    sum = hn::Add(sum, rounded);
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, a + i);
  }
  *power = hn::GetLane(hn::SumOfLanes(d, squares));
  *error = hn::GetLane(hn::SumOfLanes(d, errors));
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

QuantizationError QuantizeRowTo(const float* x, int64_t depth, int group, const Int8RowSlot& to) {
  double power = 0, error = 0;
  std::vector<double> powers(static_cast<size_t>(depth / group));
  for (int64_t g = 0; g < depth / group; ++g, x += group) {
    const float largest = LargestMagnitude(x, group);
    // Below this the inverse would overflow; such values are zero beside anything else.
    const bool tiny = largest < kLargest / std::numeric_limits<float>::max();
    const float scale = tiny ? 0.0f : largest / kLargest;
    HWY_ALIGN int8_t a[kMaxGroup];
    float group_power, group_error;
    const int32_t sum =
        QuantizeGroup(x, group, tiny ? 0.0f : kLargest / largest, a, &group_power, &group_error);
    for (int k = 0; k < group; k += 4) {
      std::memcpy(to.a + ((g * group + k) * to.tile_rows + 4 * to.row), a + k, 4);
    }
    const double square = static_cast<double>(scale) * scale;
    const double non_finite = group_power - group_power;  // NaN where x has NaN or infinity, else 0
    powers[static_cast<size_t>(g)] = square * group_power;
    power += square * group_power + non_finite;
    error += square * group_error;
    to.scales[g * to.tile_rows + to.row] = scale;
    to.sums[g * to.tile_rows + to.row] = scale * static_cast<float>(sum);
  }
  if (std::isnan(power)) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t g = 0; g < depth / group; ++g) {
      to.scales[g * to.tile_rows + to.row] = to.sums[g * to.tile_rows + to.row] = kNan;
    }
    return {};  // more bits would not help
  }
  if (error == 0) return {};
  const auto median = powers.begin() + static_cast<int64_t>(powers.size() / 2);
  std::nth_element(powers.begin(), median, powers.end());
  return {error / power, error / (*median * static_cast<double>(powers.size()))};
}

void SubtractQuantizedFrom(const float* x, int64_t depth, int group, const Int8RowSlot& q, float* rest) {
  for (int64_t g = 0; g < depth / group; ++g) {
    const float scale = q.scales[g * q.tile_rows + q.row];
    for (int64_t k = g * group; k < (g + 1) * group; k += 4) {
      const int8_t* const a = q.a + k * q.tile_rows + 4 * q.row;
      for (int i = 0; i < 4; ++i) rest[k + i] = x[k + i] - scale * static_cast<float>(a[i]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(QuantizeRowTo);
HWY_EXPORT(SubtractQuantizedFrom);

QuantizationError QuantizeRow(const float* x, int64_t depth, int group, const Int8RowSlot& to) {
  return HWY_DYNAMIC_DISPATCH(QuantizeRowTo)(x, depth, group, to);
}

void SubtractQuantized(const float* x, int64_t depth, int group, const Int8RowSlot& quantized, float* rest) {
  HWY_DYNAMIC_DISPATCH(SubtractQuantizedFrom)(x, depth, group, quantized, rest);
}

}  // namespace qwen_image
#endif

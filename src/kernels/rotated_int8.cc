#include "kernels/rotated_int8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotated_int8.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"

#ifndef QWEN_IMAGE_KERNELS_ROTATED_INT8_ONCE_
#define QWEN_IMAGE_KERNELS_ROTATED_INT8_ONCE_
namespace qwen_image {
constexpr int64_t kRotationSide = 4;  // of the matrix whose powers rotate
}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One factor of the Kronecker power: fours of values that are `stride` apart.
template <class D>
HWY_INLINE void RotateFours(D d, float* values, int64_t stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float *a = values, *b = a + stride, *c = b + stride, *e = c + stride;
  const auto minus_two = hn::Set(d, -2.0f);
  for (int64_t i = 0; i < stride; i += lanes) {
    const auto va = hn::LoadU(d, a + i), vb = hn::LoadU(d, b + i);
    const auto vc = hn::LoadU(d, c + i), ve = hn::LoadU(d, e + i);
    const auto sum = hn::Add(hn::Add(va, vb), hn::Add(vc, ve));
    hn::StoreU(hn::MulAdd(minus_two, ve, sum), d, a + i);
    hn::StoreU(hn::MulAdd(minus_two, vc, sum), d, b + i);
    hn::StoreU(hn::MulAdd(minus_two, vb, sum), d, c + i);
    hn::StoreU(hn::MulAdd(minus_two, va, sum), d, e + i);
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void RotateNeighbours(float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += kRotationSide) RotateFours(hn::CappedTag<float, 1>(), values + i, 1);
}
#else
// Fours of neighbours, which are the blocks of a vector.
HWY_INLINE void RotateNeighbours(float* values, int64_t count) {
  const hn::CappedTag<float, 4> d;
  const auto minus_two = hn::Set(d, -2.0f);
  for (int64_t i = 0; i < count; i += kRotationSide) {
    const auto v = hn::LoadU(d, values + i);
    const auto pairs = hn::Add(v, hn::Shuffle2301(v));
    const auto sum = hn::Add(pairs, hn::Shuffle1032(pairs));
    hn::StoreU(hn::MulAdd(minus_two, hn::Shuffle0123(v), sum), d, values + i);
  }
}
#endif

// The bits do not depend on the vectors: sums are taken in the same order, and twice a value is exact.
void RotateGroups(float* values, int64_t count, int64_t group) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, kRotationSide> d4;
  if (group > 1) RotateNeighbours(values, count);
  for (int64_t stride = kRotationSide; stride < group; stride *= kRotationSide) {
    for (int64_t begin = 0; begin < count; begin += kRotationSide * stride) {
      if (stride % static_cast<int64_t>(hn::Lanes(d)) == 0) {
        RotateFours(d, values + begin, stride);
      } else {
        RotateFours(d4, values + begin, stride);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {
namespace {

HWY_EXPORT(RotateGroups);

constexpr int64_t kMaxGroup = 256;  // no tool takes more, and readers take so many values at a time

bool IsPowerOfSide(int64_t number) {
  while (number > 1 && number % kRotationSide == 0) number /= kRotationSide;
  return number == 1;
}

// The integers of a rotated matrix, for products with rotated activations.
IntegerForm RotatedIntegers(int64_t group) {
  constexpr int64_t kLeast = 16, kMost = 64;  // what kernels take
  if (group < kLeast) return {};
  return {.group = static_cast<int>(std::min(group, kMost)),
          .bits = 8,
          .packed = {.bits = 8, .offset = 0, .apart = 0, .flip = 0x80},
          .rotation = group};
}

class RotatedInt8Coding : public WeightCoding {
 public:
  RotatedInt8Coding(int64_t group, std::vector<float> scales)
      : WeightCoding(group, group, /*side_bytes=*/0, RotatedIntegers(group), scales.size() > 1),
        scales_(std::move(scales)) {
    const float divisor = std::sqrt(static_cast<float>(group));  // a power of two
    for (float& scale : scales_) scale /= divisor;
  }

  std::string Name() const override { return fmt::format("rotated I8, groups of {}", unit()); }

  void Decode(const std::byte* units, int64_t row, int64_t, int64_t count, float* to) const override {
    for (int64_t i = 0; i < count * unit(); ++i) to[i] = std::to_integer<int8_t>(units[i]);
    Rotate(to, count * unit(), unit());
    for (int64_t i = 0; i < count * unit(); ++i) to[i] *= ScaleOf(row);
  }

  // The bytes are the integers, so no copy of them is needed.
  void Unpack(const std::byte*, int64_t row, int64_t, int64_t count, uint8_t*, float* scales,
              float* biases) const override {
    const int64_t groups = count * unit() / integers().group;
    std::fill_n(scales, groups, ScaleOf(row));
    std::fill_n(biases, groups, -128.0f * ScaleOf(row));
  }

 private:
  float ScaleOf(int64_t row) const { return scales_[scales_.size() == 1 ? 0 : static_cast<size_t>(row)]; }

  std::vector<float> scales_;  // of the rows, divided by R's divisor
};

}  // namespace

void Rotate(float* values, int64_t count, int64_t group) {
  HWY_DYNAMIC_DISPATCH(RotateGroups)(values, count, group);
}

std::string WhyNotRotated(int64_t group, int64_t cols) {
  if (group < kRotationSide || group > kMaxGroup || !IsPowerOfSide(group))
    return fmt::format("groups of {} values; a power of 4 from {} to {} is expected", group, kRotationSide,
                       kMaxGroup);
  if (cols % group != 0) return fmt::format("groups of {} values, but rows of {}", group, cols);
  return "";
}

std::shared_ptr<const WeightCoding> MakeRotatedInt8Coding(int64_t group, std::vector<float> scales) {
  return std::make_shared<RotatedInt8Coding>(group, std::move(scales));
}

}  // namespace qwen_image
#endif

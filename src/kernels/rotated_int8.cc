#include "kernels/rotated_int8.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace qwen_image {
namespace {

constexpr int64_t kSide = 4;        // of the matrix whose powers rotate
constexpr int64_t kMaxGroup = 256;  // no tool takes more, and readers take so many values at a time

bool IsPowerOfSide(int64_t number) {
  while (number > 1 && number % kSide == 0) number /= kSide;
  return number == 1;
}

// values · R without its divisor: one factor of the Kronecker power after another.
void Rotate(float* values, int64_t group) {
  for (int64_t stride = 1; stride < group; stride *= kSide) {
    for (int64_t begin = 0; begin < group; begin += kSide * stride) {
      float *a = values + begin, *b = a + stride, *c = b + stride, *d = c + stride;
      for (int64_t i = 0; i < stride; ++i) {
        const float sum = (a[i] + b[i]) + (c[i] + d[i]);
        const float first = sum - 2 * d[i], second = sum - 2 * c[i];
        d[i] = sum - 2 * a[i];
        c[i] = sum - 2 * b[i];
        a[i] = first;
        b[i] = second;
      }
    }
  }
}

class RotatedInt8Coding : public WeightCoding {
 public:
  RotatedInt8Coding(int64_t group, std::vector<float> scales)
      : WeightCoding(group, group, /*side_bytes=*/0, /*integers=*/{}, scales.size() > 1),
        scales_(std::move(scales)) {
    const float divisor = std::sqrt(static_cast<float>(group));  // a power of two
    for (float& scale : scales_) scale /= divisor;
  }

  std::string Name() const override { return fmt::format("rotated I8, groups of {}", unit()); }

  void Decode(const std::byte* units, int64_t row, int64_t, int64_t count, float* to) const override {
    const float scale = scales_[scales_.size() == 1 ? 0 : static_cast<size_t>(row)];
    for (int64_t i = 0; i < count * unit(); ++i) to[i] = std::to_integer<int8_t>(units[i]);
    for (float* values = to; values < to + count * unit(); values += unit()) {
      Rotate(values, unit());
      for (int64_t i = 0; i < unit(); ++i) values[i] *= scale;
    }
  }

  // Not asked of a coding without integers: the q are not those of the weights.
  void Unpack(const std::byte*, int64_t, int64_t, int64_t, uint8_t*, float*, float*) const override {}

 private:
  std::vector<float> scales_;  // of the rows, divided by R's divisor
};

}  // namespace

std::string WhyNotRotated(int64_t group, int64_t cols) {
  if (group < kSide || group > kMaxGroup || !IsPowerOfSide(group))
    return fmt::format("groups of {} values; a power of 4 from {} to {} is expected", group, kSide,
                       kMaxGroup);
  if (cols % group != 0) return fmt::format("groups of {} values, but rows of {}", group, cols);
  return "";
}

std::shared_ptr<const WeightCoding> MakeRotatedInt8Coding(int64_t group, std::vector<float> scales) {
  return std::make_shared<RotatedInt8Coding>(group, std::move(scales));
}

}  // namespace qwen_image

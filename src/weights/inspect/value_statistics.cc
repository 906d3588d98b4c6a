#include "weights/inspect/value_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace qwen_image {
namespace {

// Independent sums side by side, so that the compiler can use vector instructions without reordering any.
constexpr size_t kLanes = 8;

struct Lanes {
  std::array<double, kLanes> sum{}, squares{}, zeros{}, not_finite{}, min, max;
};

// Of finite values; `poisoned` if there was another.
ValueStatistics Measure(const double* values, int64_t count, bool* poisoned) {
  // Sums of what is left after the first value is subtracted: a narrow spread around a large mean keeps its
  // digits.
  const double shift = std::isfinite(values[0]) ? values[0] : 0;
  Lanes lanes;
  lanes.min.fill(std::numeric_limits<double>::infinity());
  lanes.max.fill(-std::numeric_limits<double>::infinity());
  const auto add = [&](size_t lane, double value) {
    const double d = value - shift;
    lanes.sum[lane] += d;
    lanes.squares[lane] += d * d;
    lanes.zeros[lane] += value == 0 ? 1.0 : 0.0;
    lanes.not_finite[lane] += value * 0;  // NaN for NaN and infinities
    lanes.min[lane] = value < lanes.min[lane] ? value : lanes.min[lane];
    lanes.max[lane] = value > lanes.max[lane] ? value : lanes.max[lane];
  };
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kLanes) <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, values[i + static_cast<int64_t>(lane)]);
  }
  for (; i < count; ++i) add(0, values[i]);

  ValueStatistics s{.count = count};
  double sum = 0, squares = 0, zeros = 0, not_finite = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sum += lanes.sum[lane];
    squares += lanes.squares[lane];
    zeros += lanes.zeros[lane];
    not_finite += lanes.not_finite[lane];
    s.min = std::min(s.min, lanes.min[lane]);
    s.max = std::max(s.max, lanes.max[lane]);
  }
  *poisoned = std::isnan(not_finite);
  const auto n = static_cast<double>(count);
  s.zeros = static_cast<int64_t>(zeros);
  s.mean = s.min == s.max ? s.min : shift + sum / n;
  s.squares = s.min == s.max ? 0 : std::max(0.0, squares - sum * sum / n);
  return s;
}

}  // namespace

void ValueStatistics::Add(const double* values, int64_t n) {
  if (n <= 0) return;
  bool poisoned = false;
  const ValueStatistics all = Measure(values, n, &poisoned);
  if (!poisoned) return Merge(all);
  std::vector<double> finite_values;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i])) finite_values.push_back(values[i]);
    nan += std::isnan(values[i]);
    inf += std::isinf(values[i]);
  }
  count += n - static_cast<int64_t>(finite_values.size());
  if (finite_values.empty()) return;
  Merge(Measure(finite_values.data(), static_cast<int64_t>(finite_values.size()), &poisoned));
}

void ValueStatistics::Merge(const ValueStatistics& other) {
  const auto own = static_cast<double>(finite()), its = static_cast<double>(other.finite());
  if (its > 0) {
    const double distance = other.mean - mean;
    squares += other.squares + distance * distance * own * its / (own + its);
    mean = own > 0 ? mean + distance * its / (own + its) : other.mean;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
    if (min == max) mean = min;
  }
  count += other.count;
  nan += other.nan;
  inf += other.inf;
  zeros += other.zeros;
}

double ValueStatistics::std() const {
  return finite() > 0 ? std::sqrt(squares / static_cast<double>(finite())) : 0;
}

double ValueStatistics::zero_share() const {
  return count > 0 ? static_cast<double>(zeros) / static_cast<double>(count) : 0;
}

double ValueStatistics::max_abs() const { return finite() > 0 ? std::max(std::abs(min), std::abs(max)) : 0; }

}  // namespace qwen_image

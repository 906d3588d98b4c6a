#include "inspect/value_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace qwen_image::inspect {
namespace {

// Two values at once, in the vector types that GCC and Clang have on every processor.
constexpr size_t kLanes = 2;
constexpr size_t kChains = 2;  // of sums that do not wait for each other
using Vector = double __attribute__((vector_size(kLanes * sizeof(double))));
using Counts = int64_t __attribute__((vector_size(kLanes * sizeof(int64_t))));

struct Sums {
  double shift = 0;  // subtracted first: a narrow spread around a large mean keeps its digits
  Vector sum{}, squares{}, not_finite{}, min, max;
  Counts zeros{};

  explicit Sums(double first)
      : shift(std::isfinite(first) ? first : 0), min(Vector{} + first), max(Vector{} + first) {}

  void Add(Vector values) {
    const Vector d = values - shift;
    sum += d;
    squares += d * d;
    not_finite += values * 0;  // NaN for NaN and infinities
    zeros -= values == 0;      // true is −1 in every lane
    min = values < min ? values : min;
    max = values > max ? values : max;
  }
};

// Of finite values; `poisoned` if there was another.
ValueStatistics Measure(const double* values, int64_t count, bool* poisoned) {
  std::array<Sums, kChains> chains = {Sums(values[0]), Sums(values[0])};
  const double shift = chains[0].shift;
  const auto n = static_cast<size_t>(count);
  constexpr size_t kStep = kLanes * kChains;
  const auto add = [&](const double* step) {
    for (size_t chain = 0; chain < kChains; ++chain) {
      Vector lanes;
      std::memcpy(&lanes, step + chain * kLanes, sizeof(lanes));
      chains[chain].Add(lanes);
    }
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) add(values + i);
  // The last few are filled up with the first value, which adds nothing to the sums.
  const size_t filled = i < n ? kStep - (n - i) : 0;
  if (filled) {
    std::array<double, kStep> rest;
    rest.fill(values[0]);
    std::copy(values + i, values + n, rest.begin());
    add(rest.data());
  }

  ValueStatistics s{.count = count};
  double sum = 0, squares = 0, not_finite = 0;
  for (const Sums& sums : chains) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sum += sums.sum[lane];
      squares += sums.squares[lane];
      not_finite += sums.not_finite[lane];
      s.zeros += sums.zeros[lane];
      s.min = std::min(s.min, sums.min[lane]);
      s.max = std::max(s.max, sums.max[lane]);
    }
  }
  if (values[0] == 0) s.zeros -= static_cast<int64_t>(filled);
  *poisoned = std::isnan(not_finite);
  const auto total = static_cast<double>(count);
  s.mean = s.min == s.max ? s.min : shift + sum / total;
  s.squares = s.min == s.max ? 0 : std::max(0.0, squares - sum * sum / total);
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

}  // namespace qwen_image::inspect

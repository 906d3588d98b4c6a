#include "parity/compare/stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "parity/compare/criterion.h"

namespace qwen_image::compare {
namespace {

constexpr size_t kFirstValues = 10;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Additions wait for each other; four chains of them run side by side.
using Lanes = std::array<double, 4>;

template <typename Step>
void ForLanes(int64_t count, const Step& step) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) step(i + static_cast<int64_t>(lane), lane);
  }
  for (; i < count; ++i) step(i, 0);
}

double SumOf(const Lanes& lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

// Floats in their order as whole numbers: neighbours differ by one.
int64_t UlpIndex(double value) {
  const auto bits = std::bit_cast<int32_t>(static_cast<float>(value));
  return bits >= 0 ? bits : static_cast<int64_t>(std::numeric_limits<int32_t>::min()) - bits;
}

}  // namespace

void StatsAccumulator::Add(const double* values, int64_t count) {
  for (int64_t i = 0; i < count && first_.size() < kFirstValues; ++i) first_.push_back(values[i]);
  // Runs of finite values, which are nearly always the whole piece.
  for (int64_t begin = 0; begin < count;) {
    const double* end =
        std::find_if_not(values + begin, values + count, [](double v) { return std::isfinite(v); });
    AddFinite(values + begin, end - (values + begin));
    for (begin = end - values; begin < count && !std::isfinite(values[begin]); ++begin)
      ++(std::isnan(values[begin]) ? nan_ : inf_);
  }
}

void StatsAccumulator::AddFinite(const double* values, int64_t count) {
  if (count == 0) return;
  // Sums around a value of the piece itself lose no digits when the mean is large and the spread small.
  const double shift = values[0];
  Lanes sums{}, squares{}, lowest, highest;
  lowest.fill(min_);
  highest.fill(max_);
  ForLanes(count, [&](int64_t i, size_t lane) {
    const double value = values[i], distance = value - shift;
    lowest[lane] = value < lowest[lane] ? value : lowest[lane];
    highest[lane] = value > highest[lane] ? value : highest[lane];
    sums[lane] += distance;
    squares[lane] += distance * distance;
  });
  min_ = *std::min_element(lowest.begin(), lowest.end());
  max_ = *std::max_element(highest.begin(), highest.end());
  const double sum = SumOf(sums);
  // Chan's rule for the mean and the spread of two parts together.
  const auto n = static_cast<double>(count), before = static_cast<double>(finite_);
  const double distance = shift + sum / n - mean_;
  square_ += SumOf(squares) - sum * sum / n + distance * distance * before * n / (before + n);
  mean_ += distance * n / (before + n);
  sum_ += sum + shift * n;
  finite_ += count;
}

TensorStats StatsAccumulator::Finish() const {
  TensorStats stats;
  stats.nan = nan_;
  stats.inf = inf_;
  stats.first = first_;
  if (finite_ == 0) return stats;
  stats.min = min_;
  stats.max = max_;
  stats.mean = mean_;
  stats.sum = sum_;
  stats.std = std::sqrt(std::max(0.0, square_) / static_cast<double>(finite_));
  return stats;
}

void LogHistogram::Add(double value) {
  constexpr int kMantissaBits = 52, kBias = 1023;
  constexpr uint64_t kBefore = static_cast<uint64_t>(kLowestExponent + kBias) << kBinBits;
  const uint64_t bin = std::bit_cast<uint64_t>(value) >> (kMantissaBits - kBinBits);
  ++counts_[bin < kBefore ? 0 : std::min<uint64_t>(bin - kBefore + 1, kBins - 1)];
  ++total_;
}

void LogHistogram::AddZeros(int64_t count) {
  counts_[0] += count;
  total_ += count;
}

double LogHistogram::Quantile(double share) const {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(total_)));
  int64_t seen = 0;
  for (size_t i = 0; i < kBins; ++i) {
    seen += counts_[i];
    if (seen < wanted || seen == 0) continue;
    if (i == 0) return 0;
    const double octaves = static_cast<double>((i - 1) >> kBinBits);
    const double part = static_cast<double>(((i - 1) & ((1u << kBinBits) - 1)) + 1) / (1 << kBinBits);
    return std::ldexp(1 + part, kLowestExponent + static_cast<int>(octaves));
  }
  return 0;
}

ErrorAccumulator::ErrorAccumulator(const TensorStats& ref, const Criterion& criterion, bool float32)
    : criterion_(criterion),
      all_close_(criterion.kind == Criterion::Kind::kAllClose),
      float32_(float32),
      guard_(1e-6 * MaxAbs(ref)),
      peak_(ref.max > ref.min ? ref.max - ref.min : (MaxAbs(ref) > 0 ? MaxAbs(ref) : 1)) {}

void ErrorAccumulator::Add(const double* ref, const double* run, int64_t count) {
  // Runs of finite errors, which are nearly always the whole piece.
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin;
    while (end < count && std::isfinite(run[end] - ref[end])) ++end;
    AddFinite(ref + begin, run + begin, end - begin);
    for (begin = end; begin < count && !std::isfinite(run[begin] - ref[begin]); ++begin, ++seen_) {
      const double w = ref[begin], g = run[begin];
      // Equal infinities, and NaN in the same place, are no difference.
      if (w == g || (std::isnan(w) && std::isnan(g)) || broken_ >= 0) continue;
      broken_ = seen_;
      broken_ref_ = w;
      broken_run_ = g;
    }
  }
}

void ErrorAccumulator::AddFinite(const double* ref, const double* run, int64_t count) {
  Lanes abs{}, square{}, dot{}, ref_square{}, run_square{}, largest{};
  ForLanes(count, [&](int64_t i, size_t lane) {
    const double w = ref[i], g = run[i], error = std::abs(g - w);
    abs[lane] += error;
    square[lane] += error * error;
    dot[lane] += w * g;
    ref_square[lane] += w * w;
    run_square[lane] += g * g;
    largest[lane] = error > largest[lane] ? error : largest[lane];
  });
  sum_abs_ += SumOf(abs);
  sum_square_ += SumOf(square);
  dot_ += SumOf(dot);
  ref_square_ += SumOf(ref_square);
  run_square_ += SumOf(run_square);
  const double piece_largest = *std::max_element(largest.begin(), largest.end());
  if (count > 0 && (piece_largest > e_.max_abs || e_.worst < 0)) {
    int64_t i = 0;
    while (std::abs(run[i] - ref[i]) != piece_largest) ++i;
    e_.max_abs = piece_largest;
    e_.worst = seen_ + i;
    e_.worst_ref = ref[i];
    e_.worst_run = run[i];
  }
  if (piece_largest > 0) {
    AddRelative(ref, run, count);
  } else {
    histogram_.AddZeros(count);
  }
  seen_ += count;
  counted_ += count;
}

// The figures that look at every error by itself.
void ErrorAccumulator::AddRelative(const double* ref, const double* run, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double w = ref[i], g = run[i], error = std::abs(g - w), size = std::abs(w);
    histogram_.Add(error);
    if (error == 0) continue;
    e_.max_rel = std::max(e_.max_rel, error / std::max(size, guard_));
    if (all_close_) {
      const double ratio = error / (criterion_.atol + criterion_.rtol * size);
      e_.allclose = std::max(e_.allclose, ratio);
      e_.outside += ratio > 1;
    }
    if (float32_) max_ulp_ = std::max(max_ulp_, std::abs(static_cast<double>(UlpIndex(g) - UlpIndex(w))));
  }
}

ErrorStats ErrorAccumulator::Finish() const {
  ErrorStats e = e_;
  if (broken_ >= 0) {
    e.max_abs = e.mean_abs = e.max_rel = e.nmse = e.cosine = e.psnr = e.allclose = kNan;
    e.p50 = e.p90 = e.p99 = e.p999 = kNan;
    e.worst = broken_;
    e.worst_ref = broken_ref_;
    e.worst_run = broken_run_;
    if (float32_) e.max_ulp = kNan;
    return e;
  }
  if (float32_) e.max_ulp = max_ulp_;
  if (counted_ == 0) {
    e.psnr = std::numeric_limits<double>::infinity();
    return e;
  }
  const auto n = static_cast<double>(counted_);
  e.mean_abs = sum_abs_ / n;
  e.nmse = ref_square_ > 0 ? sum_square_ / ref_square_ : sum_square_;
  const double lengths = std::sqrt(ref_square_) * std::sqrt(run_square_);
  e.cosine = lengths > 0 ? dot_ / lengths : (ref_square_ == run_square_ ? 1 : 0);
  e.psnr = 10 * std::log10(peak_ * peak_ * n / sum_square_);  // without an error: infinite
  e.p50 = std::min(histogram_.Quantile(0.5), e.max_abs);
  e.p90 = std::min(histogram_.Quantile(0.9), e.max_abs);
  e.p99 = std::min(histogram_.Quantile(0.99), e.max_abs);
  e.p999 = std::min(histogram_.Quantile(0.999), e.max_abs);
  return e;
}

}  // namespace qwen_image::compare

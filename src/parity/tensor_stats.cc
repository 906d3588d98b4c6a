#include "parity/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "parity/criterion.h"

namespace qwen_image {
namespace {

constexpr size_t kFirstValues = 10;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Floats in their order as whole numbers: neighbours differ by one.
int64_t UlpIndex(double value) {
  const auto bits = std::bit_cast<int32_t>(static_cast<float>(value));
  return bits >= 0 ? bits : static_cast<int64_t>(std::numeric_limits<int32_t>::min()) - bits;
}

}  // namespace

void StatsAccumulator::Add(const double* values, int64_t count) {
  for (int64_t i = 0; i < count && first_.size() < kFirstValues; ++i) first_.push_back(values[i]);
  // Sums around a value of the piece itself lose no digits when the mean is large and the spread small.
  const double* start = std::find_if(values, values + count, [](double v) { return std::isfinite(v); });
  const double shift = start == values + count ? 0 : *start;
  int64_t finite = 0;
  double sum = 0, square = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? nan_ : inf_);
      continue;
    }
    ++finite;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    sum += value - shift;
    square += (value - shift) * (value - shift);
  }
  if (finite == 0) return;
  // Chan's rule for the mean and the spread of two parts together.
  const auto n = static_cast<double>(finite), before = static_cast<double>(finite_);
  const double mean = shift + sum / n;
  const double distance = mean - mean_;
  square_ += square - sum * sum / n + distance * distance * before * n / (before + n);
  mean_ += distance * n / (before + n);
  sum_ += sum + shift * n;
  finite_ += finite;
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

void ErrorAccumulator::AddUnequalOrInfinite(double ref, double run) {
  // Equal infinities, and NaN in the same place, are no difference.
  if (ref == run || (std::isnan(ref) && std::isnan(run)) || broken_ >= 0) return;
  broken_ = seen_;
  broken_ref_ = ref;
  broken_run_ = run;
}

void ErrorAccumulator::Add(const double* ref, const double* run, int64_t count) {
  for (int64_t i = 0; i < count; ++i, ++seen_) {
    const double w = ref[i], g = run[i];
    const double error = std::abs(g - w);
    if (!std::isfinite(error)) {
      AddUnequalOrInfinite(w, g);
      continue;
    }
    ++counted_;
    if (error > e_.max_abs || e_.worst < 0) {
      e_.max_abs = error;
      e_.worst = seen_;
      e_.worst_ref = w;
      e_.worst_run = g;
    }
    sum_abs_ += error;
    sum_square_ += error * error;
    dot_ += w * g;
    ref_square_ += w * w;
    run_square_ += g * g;
    histogram_.Add(error);
    if (error == 0) continue;
    const double size = std::abs(w);
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

}  // namespace qwen_image

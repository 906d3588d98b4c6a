// Accumulators that compute TensorStats and ErrorStats from tensors read in pieces.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "parity/compare/result.h"

namespace qwen_image::compare {

class StatsAccumulator {
 public:
  void Add(const double* values, int64_t count);
  TensorStats Finish() const;  // without shape and dtype

 private:
  void AddFinite(const double* values, int64_t count);

  int64_t finite_ = 0, nan_ = 0, inf_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0, mean_ = 0;
  double square_ = 0;  // Σ (value − mean)²
  std::vector<double> first_;
};

// Quantiles of positive numbers. A bin is 1/32 of an octave wide (linearly), so a quantile is at most 3 %
// above the true one. Values below 2⁻¹⁶⁰ count as zero, those above 2¹⁶⁰ as 2¹⁶⁰.
class LogHistogram {
 public:
  void Add(double value);
  void AddZeros(int64_t count);
  double Quantile(double share) const;  // the upper edge of the bin that holds it; 0 if nothing was added

 private:
  static constexpr int kBinBits = 5, kLowestExponent = -160, kHighestExponent = 160;
  static constexpr size_t kBins = (static_cast<size_t>(kHighestExponent - kLowestExponent) << kBinBits) + 1;
  std::array<int64_t, kBins> counts_{};  // [0]: zeros
  int64_t total_ = 0;
};

class ErrorAccumulator {
 public:
  // `ref`: figures of the whole reference tensor. `criterion`: for ErrorStats::allclose. `float32`: whether
  // both sides are float32.
  ErrorAccumulator(const TensorStats& ref, const Criterion& criterion, bool float32);

  void Add(const double* ref, const double* run, int64_t count);
  ErrorStats Finish() const;

 private:
  void AddFinite(const double* ref, const double* run, int64_t count);
  void AddRelative(const double* ref, const double* run, int64_t count);

  Criterion criterion_;
  bool all_close_, float32_;
  double guard_;  // smallest denominator of max_rel
  double peak_;   // of psnr
  int64_t seen_ = 0, counted_ = 0;
  int64_t broken_ = -1;  // index of the first NaN or infinity on one side only
  double broken_ref_ = 0, broken_run_ = 0;
  ErrorStats e_;
  double max_ulp_ = 0;
  double sum_abs_ = 0, sum_square_ = 0, dot_ = 0, ref_square_ = 0, run_square_ = 0;
  LogHistogram histogram_;
};

}  // namespace qwen_image::compare

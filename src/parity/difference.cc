#include "parity/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "parity/level.h"

namespace qwen_image {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
Difference CompareValues(const T* got, const T* want, int64_t count) {
  Difference d;
  double error_square = 0, want_square = 0, want_max = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    if (std::isnan(g) && std::isnan(w)) continue;
    const double error = g == w ? 0.0 : std::abs(g - w);  // equal infinities have no difference
    if (!std::isfinite(error)) return {kNan, kNan, kNan, i};
    if (error > d.max_abs || d.worst < 0) d.worst = i;
    d.max_abs = std::max(d.max_abs, error);
    error_square += error * error;
    if (std::isfinite(w)) {
      want_square += w * w;
      want_max = std::max(want_max, std::abs(w));
    }
  }
  d.nmse = want_square > 0 ? error_square / want_square : error_square;
  d.max_rel = want_max > 0 ? d.max_abs / want_max : d.max_abs;
  return d;
}

}  // namespace

Difference Compare(const float* got, const float* want, int64_t count) {
  return CompareValues(got, want, count);
}
Difference Compare(const int64_t* got, const int64_t* want, int64_t count) {
  return CompareValues(got, want, count);
}

double Tolerance::Value(const Difference& d) const {
  switch (measure) {
    case Measure::kMaxAbs:
      return d.max_abs;
    case Measure::kMaxRel:
      return d.max_rel;
    case Measure::kNmse:
      return d.nmse;
  }
  return kNan;
}

std::string_view Tolerance::name() const {
  switch (measure) {
    case Measure::kMaxAbs:
      return "max_abs";
    case Measure::kMaxRel:
      return "max_rel";
    case Measure::kNmse:
      return "nmse";
  }
  return "?";
}

Tolerance ToleranceOf(std::string_view checkpoint, ErrorMode mode) {
  using Measure = Tolerance::Measure;
  if (checkpoint.ends_with("input_ids") || checkpoint.ends_with("_mask")) return {Measure::kMaxAbs, 0};
  if (checkpoint == "sigmas") return {Measure::kMaxAbs, 1e-6};
  if (checkpoint == "timesteps") return {Measure::kMaxRel, 1e-6};
  if (checkpoint == "initial_latents_packed") return {Measure::kMaxAbs, 2e-6};
  if (mode == ErrorMode::kAccumulated) {
    // A level of the picture is 2 / 255 of the range −1…1; half of one keeps the rounded pixels within one
    // level.
    if (checkpoint == "image") return {Measure::kMaxAbs, 1.0 / 255};
    return {Measure::kNmse, 1e-6};
  }
  return {Measure::kNmse, LevelOf(checkpoint) == CheckpointLevel::kAll ? 1e-10 : 1e-8};
}

}  // namespace qwen_image

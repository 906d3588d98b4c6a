// Error curves of HTML reports, as inline SVG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parity/compare/result.h"

namespace qwen_image::report {

// NMSE over the number of a block or of a step.
struct ErrorSeries {
  std::string name;
  std::vector<std::pair<int64_t, double>> points;
};
// `id` and `label` are trusted text. Empty if no series has a point.
std::string SeriesCurve(std::string_view id, std::string_view label, const std::vector<ErrorSeries>& all);

std::string NetworkCurve(const compare::Comparison& comparison);  // NMSE of every checkpoint, in order
std::string StepCurve(const compare::Comparison& comparison);     // along the steps; empty if there are none

}  // namespace qwen_image::report

// The error curves of the HTML report, as inline SVG. Internal to this folder.
#pragma once

#include <string>

#include "parity/compare/result.h"

namespace qwen_image::report {

std::string NetworkCurve(const compare::Comparison& comparison);  // NMSE of every checkpoint, in order
std::string StepCurve(const compare::Comparison& comparison);     // along the steps; empty if there are none

}  // namespace qwen_image::report

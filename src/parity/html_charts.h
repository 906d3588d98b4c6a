// The error curves of the HTML report, as inline SVG. Internal to html_*.cc.
#pragma once

#include <string>

#include "parity/comparison.h"

namespace qwen_image {

std::string NetworkCurve(const Comparison& comparison);  // NMSE of every checkpoint, in order
std::string StepCurve(const Comparison& comparison);     // along the steps; empty if there are none

}  // namespace qwen_image

// A Comparison for other programs: JSON for tools, JUnit for test servers.
#pragma once

#include <string>

#include "parity/compare/result.h"

namespace qwen_image::report {

// NaN and infinity become null.
Json ReportJson(const compare::Comparison& comparison);
// One suite for each component, one case for each tensor.
std::string ReportJUnit(const compare::Comparison& comparison);

}  // namespace qwen_image::report

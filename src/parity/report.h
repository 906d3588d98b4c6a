// A Comparison for people (text), for tools (JSON) and for test servers (JUnit).
#pragma once

#include <string>

#include "parity/comparison.h"

namespace qwen_image {

struct ReportOptions {
  bool tell_of_all = false;  // name the option that shows every tensor
  bool all = false;          // every tensor; else the failing ones and the worst of each component
  int64_t worst = 1;         // so many of each component that pass, those nearest to their limits first
  bool color = false;
};

std::string ReportText(const Comparison& comparison, const ReportOptions& options = {});
// NaN and infinity become null.
Json ReportJson(const Comparison& comparison);
// One suite for each component, one case for each tensor.
std::string ReportJUnit(const Comparison& comparison);

// How near the limit: 1 is at the limit. Tensors that failed are above all that passed.
double Severity(const TensorComparison& tensor);
// A flat index as coordinates: "[0, 3, 17]".
std::string CoordinatesOf(int64_t index, const Shape& shape);

}  // namespace qwen_image

// ReportText: a Comparison as text for people.
#pragma once

#include <string>

#include "parity/compare/result.h"

namespace qwen_image::report {

struct ReportOptions {
  bool tell_of_all = false;  // name the option that shows every tensor
  bool all = false;          // show every tensor, not only the failing ones and the worst of each component
  int64_t worst = 1;  // how many passing tensors of each component to show, nearest to their limits first
  bool color = false;
};

std::string ReportText(const compare::Comparison& comparison, const ReportOptions& options = {});

// Why the first divergence of several tensors that failed cannot be told; empty if it can.
std::string UnknownOrderText(const compare::Comparison& comparison);

// Which tensors the run should dump to show the operation that errs; empty if it has all of them.
std::string UndumpedText(const compare::Comparison& comparison);

// How near a tensor is to its limit: 1 is at the limit. A tensor that failed is above all that passed.
double Severity(const compare::TensorComparison& tensor);
// A flat index as coordinates: "[0, 3, 17]".
std::string CoordinatesOf(int64_t index, const Shape& shape);

}  // namespace qwen_image::report

// Heat map and histograms of a tensor, for the HTML report. Internal to this folder.
#pragma once

#include <string>

#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::report {

// Shows where the error lies and how large it is. Reads both tensors in pieces. Empty if they cannot be
// compared.
std::string TensorHtml(const compare::TensorComparison& tensor, const record::TensorSet& ref,
                       const record::TensorSet& run);

}  // namespace qwen_image::report

// Heat map and histograms of a tensor, for the HTML report. Internal to html_*.cc.
#pragma once

#include <string>

#include "parity/comparison.h"
#include "parity/tensor_set.h"

namespace qwen_image {

// Where the error lies and how large it is. Reads both tensors in pieces. Empty if they cannot be compared.
std::string TensorHtml(const TensorComparison& tensor, const TensorSet& ref, const TensorSet& run);

}  // namespace qwen_image

// The pictures of both sides and their difference, for the HTML report. Internal to html_*.cc.
#pragma once

#include <string>

#include "parity/comparison.h"
#include "parity/tensor_set.h"

namespace qwen_image {

// From the `image` tensors, else from image.png in both folders, else from the two paths if they are PNG
// files. `ref` and `run` may be null. Empty if there are no pictures.
std::string PicturesHtml(const Comparison& comparison, const TensorSet* ref, const TensorSet* run);

}  // namespace qwen_image

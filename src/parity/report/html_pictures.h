// The pictures of both sides and their difference, for the HTML report. Internal to this folder.
#pragma once

#include <string>

#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::report {

// From the `image` tensors, else from image.png in both folders, else from the two paths if they are PNG
// files. `ref` and `run` may be null. Empty if there are no pictures.
std::string PicturesHtml(const compare::Comparison& comparison, const record::TensorSet* ref,
                         const record::TensorSet* run);

}  // namespace qwen_image::report

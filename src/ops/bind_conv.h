// Convolutions as they lie in files.
#pragma once

#include <string>

#include "core/tensor.h"
#include "ops/conv.h"
#include "weights/binder.h"

namespace qwen_image {

// The weights `name`.weight and `name`.bias. `shape` is [out, in, kernel, kernel] or [out, in, slices,
// kernel, kernel]: of temporal slices only the last one meets a single picture. What is missing or does not
// fit is reported by the binder's Finish().
Conv BindConv(WeightBinder& binder, const std::string& name, const Shape& shape);
// Leaves plain numbers in the file; whatever else there is becomes floats.
Conv3x3Layer BindConv3x3(WeightBinder& binder, const WeightStore& store, const std::string& name,
                         const Shape& shape);

}  // namespace qwen_image

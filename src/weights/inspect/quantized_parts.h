// Puts quantized tensors and their scales and biases together, and gives every tensor its values.
#pragma once

#include "weights/inspect/inspected.h"

namespace qwen_image {

// Recognises
//   MLX:   X.weight (U32, packed) + X.scales + X.biases (floats); with X.scales (U8) and no biases: mxfp4,
//          mxfp8, nvfp4, of which only the shape is known here
//   fp8:   X.weight (F8) + X.scale_weight, X.weight_scale or X.scale; or nothing, where the values are plain
// and adds findings for parts that are missing, left over or do not fit.
void ResolveQuantized(InspectedComponent& component);

}  // namespace qwen_image

// How diffusers applies the .alpha beside a LoRA's layer: it multiplies the layer's matrices once, when the
// file is loaded, and rounds the products to the file's type.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "weights/tensor.h"

namespace qwen_image::lora {

// alpha / rank, divided between the two matrices of a layer so that neither becomes tiny.
struct AlphaScales {
  double down = 1;
  double up = 1;  // a power of two
};
AlphaScales SplitAlpha(double alpha_over_rank);  // which is positive

// The values of an F16 or BF16 matrix times `scale`, rounded to its type. Null if no product was rounded:
// then a factor behind the matrix gives the same numbers, and no copy is needed.
std::shared_ptr<const std::vector<std::byte>> ScaledMatrix(const WeightTensor& matrix, double scale);

}  // namespace qwen_image::lora

// Finds norms with another epsilon: it makes all tokens a little smaller or larger, too little for any
// tolerance.
#pragma once

#include <optional>

#include "parity/compare/tensor.h"

namespace qwen_image::compare {

// How much larger the rows of `run` are than those of `ref` (−4.5e-6: so much smaller), both of one size.
// Nothing unless nearly all rows agree in the direction and nearly all of the error is of this kind, which
// rounding and errors from before a norm are not.
std::optional<double> SystematicScale(const TensorSource& ref, const TensorSource& run);

}  // namespace qwen_image::compare

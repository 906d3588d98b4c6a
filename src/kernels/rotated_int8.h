// ComfyUI's "ConvRot": 8-bit weights in a rotated basis, so that the few large ones spread over many.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/weight_matrix.h"

namespace qwen_image {

// A row is cut into groups of `group` values, and each was multiplied by an orthogonal matrix R before it was
// rounded to integers. R is the Kronecker power of
//   ( 1  1  1 -1)
//   ( 1  1 -1  1) / 2
//   ( 1 -1  1  1)
//   (-1  1  1  1)
// of as many values as the group has. It is its own inverse, so what is decoded is scale · (q · R), the
// weights as they were before the rotation. q · R is exact in floats: only the product is rounded.
// Products may as well rotate the other side: x · wᵀ = scale · (x · R) · qᵀ.
// `scales`: one number for all values, or one for each row. `group` is one that WhyNotRotated does not
// refuse.
std::shared_ptr<const WeightCoding> MakeRotatedInt8Coding(int64_t group, std::vector<float> scales);

// Every group of the values becomes group · R, without R's divisor √group.
void Rotate(float* values /*[count]*/, int64_t count, int64_t group);

// What is wrong with groups of so many values in rows of `cols`; empty: nothing.
std::string WhyNotRotated(int64_t group, int64_t cols);

}  // namespace qwen_image

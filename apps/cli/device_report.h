// What a user should know about where a pipeline computes.
#pragma once

#include <string>

#include "files/json.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// What MLX makes of the weights, in a sentence; empty on the CPU, and where all are copied as they are.
std::string WeightsNote(const Pipeline& pipeline);
Json WeightsJson(const Pipeline& pipeline);  // null on the CPU
// The instruction sets of the CPU's kernels, for floats and for 8-bit products; empty and null elsewhere.
std::string KernelsNote(const Pipeline& pipeline);
Json KernelsJson(const Pipeline& pipeline);

}  // namespace qwen_image::cli

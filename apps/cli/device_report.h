// What a user should know about a pipeline on another device than the CPU.
#pragma once

#include <string>

#include "files/json.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// What MLX makes of the weights, in a sentence; empty on the CPU, and where all are copied as they are.
std::string WeightsNote(const Pipeline& pipeline);
Json WeightsJson(const Pipeline& pipeline);  // null on the CPU

}  // namespace qwen_image::cli

// The one reader of tensors: gives every tensor of some files its name, puts the parts of quantized ones
// together and notes what is wrong. The loader (WeightStore) and `inspect` both use it, so that what one
// reports is what the other does.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "families/weight_names.h"
#include "files/json.h"
#include "files/weight_file.h"
#include "weights/finding.h"
#include "weights/tensor.h"

namespace qwen_image {

// ComfyUI's sign that fp8 weights are to be multiplied by scales.
inline constexpr std::string_view kScaledFp8Marker = "scaled_fp8";

// The tensors of a set of files by the names that `rename` gives them. Left out are those that it gives none,
// and those that no model computes with: signs, scales of quantized activations, tables that tools save too.
// `config` may say how packed values are quantized. What is wrong with a single tensor is its problem().
std::map<std::string, WeightTensor> ReadTensors(std::span<const std::unique_ptr<WeightFile>> files,
                                                const Renamer& rename, const Json& config,
                                                std::vector<Finding>& findings);

}  // namespace qwen_image

// The parts of quantized tensors, put together.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "weights/tensor.h"

namespace qwen_image {

// What the scale of X.weight may be called: X.scale_weight, … The name with "inv" is used by transformers and
// vLLM, which multiply by it like by the others.
inline constexpr std::string_view kScaleNames[] = {"scale_weight", "weight_scale", "weight_scale_inv"};

// The JSON text by which ComfyUI says how X.weight is stored: X.comfy_quant.
inline constexpr std::string_view kComfyNote = "comfy_quant";

// Puts values and their scales and biases together:
//   MLX:     X.weight (U32) + X.scales + X.biases
//   ComfyUI: X.weight (F8_* or I8, which may be rotated) + X.scale_weight or X.weight_scale
//            (+ X.comfy_quant, which says how)
//   vLLM:    X.weight (F8_*) + X.weight_scale or X.weight_scale_inv
//   quanto:  X.weight._data (I8 or F8_*) + X.weight._scale
// Parts that are missing or do not fit become the problem() of their tensor. Names are kept. Scales that
// belong to nothing stay tensors of their own, so that a loader reports them.
std::map<std::string, WeightTensor> JoinParts(const std::map<std::string, StoredIn>& stored);

}  // namespace qwen_image

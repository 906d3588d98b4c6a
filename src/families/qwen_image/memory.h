// The memory that the stages of Qwen-Image work in, beside their weights.
#pragma once

#include "families/model.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"

namespace qwen_image {

int64_t TransformerWorkspace(const TransformerConfig& config, const Geometry& geometry,
                             const Workload& workload);  // bytes
int64_t VaeWorkspace(const VaeConfig& config, const Geometry& geometry, const Workload& workload);

}  // namespace qwen_image

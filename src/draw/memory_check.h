// Will it fit? Asked before the weights are read and before a picture is begun.
#pragma once

#include "draw/settings.h"
#include "families/model.h"
#include "weights/model_parts.h"

namespace qwen_image::draw {

// The stages run one after the other and their pages can be dropped in between, so the largest one counts.
void CheckWeightsFit(const ModelParts& parts);  // throws Error kOutOfMemory

Workload WorkloadOf(const GenerateRequest& request, const Settings& settings);
void CheckWorkspaceFits(const Model& model, const GenerateRequest& request, const Settings& settings);

}  // namespace qwen_image::draw

// What a model of Qwen-Image is run with if nothing else is asked for.
#pragma once

#include <vector>

#include "families/qwen_image/variant.h"
#include "model/scheduler.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_defaults.h"

namespace qwen_image {

// The defaults of a model without a qwen_image.json, …
Defaults OfficialDefaults(const SchedulerConfig& scheduler, Variant variant = Variant::kUnknown);
// … and with what its qwen_image.json says.
Defaults DefaultsFor(const ModelDefaults& own, const SchedulerConfig& scheduler, Variant variant);

// With a Lightning LoRA the model is to be run as that was trained: few steps, no guidance, other noise
// levels. Of several the one with the most steps decides. A model that is distilled itself stays as it is,
// and so does one whose Lightning LoRA has the scale 0.
void UseLightning(const std::vector<AppliedLora>& loras, SchedulerConfig& scheduler, Defaults& defaults);

}  // namespace qwen_image

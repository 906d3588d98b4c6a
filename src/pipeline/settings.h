// A request with every default filled in and every value checked.
#pragma once

#include "model/scheduler.h"
#include "model/transformer.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_parts.h"

namespace qwen_image {

struct Settings {
  std::string negative_prompt;
  int64_t width = 0, height = 0;
  int64_t steps = 0;
  double cfg = 1;
  TokenGrid grid;

  bool guided() const { return cfg > 1; }  // as in diffusers: 1 and less is off
};

constexpr int64_t kPixelsPerToken = 16;

// Throws Error kUsage that says what would be possible.
Settings ResolveSettings(const GenerateRequest& request, const Defaults& defaults, int64_t latent_channels);

// Distilled models (Lightning) bring a schedule with a constant shift and no terminal; they need no guidance.
bool IsDistilled(const SchedulerConfig& scheduler);

// The defaults of a model without a qwen_image.json, …
Defaults OfficialDefaults(const SchedulerConfig& scheduler);
// … and with what its qwen_image.json says. Throws Error kBadInput.
Defaults DefaultsFor(const ModelParts& parts, const SchedulerConfig& scheduler);

// With a Lightning LoRA the model is to be run as that was trained: few steps, no guidance, other noise
// levels. Of several the one with the most steps decides. A model that is distilled itself stays as it is,
// and so does one whose Lightning LoRA has the scale 0.
void UseLightning(const std::vector<AppliedLora>& loras, SchedulerConfig& scheduler, Defaults& defaults);

}  // namespace qwen_image

#include "families/qwen_image/defaults.h"

#include <algorithm>

#include "families/model.h"

namespace qwen_image {

Defaults OfficialDefaults(const SchedulerConfig& scheduler, Variant variant) {
  Defaults defaults;  // as the model's card uses it
  if (variant == Variant::kEdit2509 || variant == Variant::kEdit2511) defaults.steps = 40;
  if (IsDistilled(scheduler)) {
    defaults.steps = 8;
    defaults.cfg = 1.0;
  }
  return defaults;
}

Defaults DefaultsFor(const ModelDefaults& own, const SchedulerConfig& scheduler, Variant variant) {
  return WithOwn(OfficialDefaults(scheduler, variant), own);
}

void UseLightning(const std::vector<AppliedLora>& loras, SchedulerConfig& scheduler, Defaults& defaults) {
  int64_t steps = 0;
  for (const AppliedLora& lora : loras) {
    if (lora.scale != 0) steps = std::max(steps, lora.lightning_steps);
  }
  if (steps == 0 || IsDistilled(scheduler)) return;
  scheduler = LightningScheduler();
  defaults.steps = steps;
  defaults.cfg = 1.0;
  defaults.lightning = true;
}

}  // namespace qwen_image

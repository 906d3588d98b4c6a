// A request with every default filled in and every value checked.
#pragma once

#include "families/qwen_image/prompt.h"
#include "families/qwen_image/transformer.h"
#include "model/scheduler.h"
#include "pipeline/edit_sizes.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_defaults.h"
#include "weights/variant.h"

namespace qwen_image {

struct Settings {
  std::string negative_prompt;
  int64_t width = 0, height = 0;  // as drawn
  int64_t output_width = 0, output_height = 0;
  int64_t steps = 0;
  double cfg = 1;
  TokenGrid grid;
  std::vector<EditInputSizes> references;  // of the pictures of an edit
  EditTemplate edit_template = EditTemplate::kEditPlus;
  std::optional<double> strength;  // with a picture to begin with
  int64_t first_step = 0;          // of `steps`: those before it would make that picture noise again

  bool guided() const { return cfg > 1; }  // as in diffusers: 1 and less is off
  int64_t steps_run() const { return steps - first_step; }
};

constexpr int64_t kPixelsPerToken = 16;
inline TokenGrid GridOf(ImageSize size) {
  return {size.height / kPixelsPerToken, size.width / kPixelsPerToken};
}

// How a model edits.
struct EditModel {
  RecognizedVariant variant;
  EditAreas areas;
};

// Throws Error kUsage that says what would be possible.
Settings ResolveSettings(const GenerateRequest& request, const Defaults& defaults, int64_t latent_channels,
                         const EditModel& edit = {});

// What the user should know about sizes: a mask that is stretched, a result that is enlarged.
std::vector<std::string> SizeNotes(const GenerateRequest& request, const Settings& settings);

// The noise levels of the steps that are run.
Schedule ScheduleOf(const SchedulerConfig& scheduler, const Settings& settings);

// Distilled models (Lightning) bring a schedule with a constant shift and no terminal; they need no guidance.
bool IsDistilled(const SchedulerConfig& scheduler);

// The defaults of a model without a qwen_image.json, …
Defaults OfficialDefaults(const SchedulerConfig& scheduler, Variant variant = Variant::kUnknown);
// … and with what its qwen_image.json says.
Defaults DefaultsFor(const ModelDefaults& own, const SchedulerConfig& scheduler, Variant variant);

// With a Lightning LoRA the model is to be run as that was trained: few steps, no guidance, other noise
// levels. Of several the one with the most steps decides. A model that is distilled itself stays as it is,
// and so does one whose Lightning LoRA has the scale 0.
void UseLightning(const std::vector<AppliedLora>& loras, SchedulerConfig& scheduler, Defaults& defaults);

}  // namespace qwen_image

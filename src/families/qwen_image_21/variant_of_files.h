// Which member of the family a model is, and the noise levels that it asks for.
#pragma once

#include <string>
#include <vector>

#include "families/qwen_image_21/variant.h"
#include "model/scheduler.h"
#include "weights/model_parts.h"

namespace qwen_image::qwen_image_21 {

struct RecognizedVariant {
  Variant variant = Variant::kBase;
  bool certain = false;          // false: nothing says it (single files), and the base model is assumed
  std::string how = {};          // what it was recognized by
  std::vector<double> sigmas;    // that the model is drawn with; empty: those that follow from the steps
  bool from_index = false;       // the sigmas and the scheduler are those of the model's own folder
  bool given = false;            // by the caller, where no file tells
  bool in_turbo_folder = false;  // the folder is Turbo's, but the transformer is from elsewhere
};

// From model_index.json, or from the caller (`asked`; empty: not given). Throws Error kUsage if `asked` is no
// variant of the family or contradicts the files, kBadInput for an index that makes no sense.
RecognizedVariant RecognizeVariant(const ModelParts& parts, const std::string& asked);

// What Turbo was published with: noise levels, and a schedule that takes them as they are.
std::vector<double> TurboSigmas();
SchedulerConfig TurboScheduler();

}  // namespace qwen_image::qwen_image_21

// What the stages of one run share.
#pragma once

#include "core/checkpoint.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {

enum class Which { kPositive, kNegative };  // prompt

struct Run {
  const GenerateRequest& request;
  const Settings& settings;
  const Compute& compute;
  Tap tap;

  PromptOptions prompt_options() const {
    return {.max_sequence_length = request.max_sequence_length,
            .parse_special_tokens = request.reference_special_tokens,
            .repairs = settings.repairs};
  }
  // With guidance every prompt takes two passes, one for each prompt; an edit's pictures take one before.
  int64_t vision_passes() const { return settings.references.empty() ? 0 : 1; }
  Compute VisionPass() const { return compute.ForPass(0, vision_passes() + prompt_passes()); }
  Compute PassFor(Which which) const {
    return compute.ForPass(vision_passes() + (which == Which::kNegative ? 1 : 0),
                           vision_passes() + prompt_passes());
  }

 private:
  int64_t prompt_passes() const { return settings.guided() ? 2 : 1; }
};

}  // namespace qwen_image

// What the stages of one run share.
#pragma once

#include "core/checkpoint.h"
#include "draw/settings.h"
#include "families/model.h"

namespace qwen_image::draw {

enum class PromptRole { kPositive, kNegative };

struct Run {
  const Model& model;
  const GenerateRequest& request;
  const Settings& settings;
  const Compute& compute;
  Tap tap;

  const Geometry& geometry() const { return model.traits().geometry; }
  PromptOptions prompt_options() const {
    return {.max_sequence_length = request.max_sequence_length,
            .parse_special_tokens = request.reference_special_tokens,
            .repairs = settings.repairs};
  }
  // With guidance there are two prompts, and each takes a pass; an edit's pictures take one before.
  int64_t vision_passes() const { return settings.references.empty() ? 0 : 1; }
  Compute VisionPass() const { return compute.ForPass(0, vision_passes() + prompt_passes()); }
  Compute PassFor(PromptRole role) const {
    return compute.ForPass(vision_passes() + (role == PromptRole::kNegative ? 1 : 0),
                           vision_passes() + prompt_passes());
  }

 private:
  int64_t prompt_passes() const { return settings.guided() ? 2 : 1; }
};

}  // namespace qwen_image::draw

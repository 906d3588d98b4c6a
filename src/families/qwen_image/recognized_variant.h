// Which member of the Qwen-Image family a model is.
#pragma once

#include <string>
#include <vector>

#include "families/qwen_image/variant.h"
#include "weights/model_parts.h"

namespace qwen_image {

struct RecognizedVariant {
  Variant variant = Variant::kUnknown;
  std::string how = {};              // recognized by: "model_index.json: QwenImageEditPlusPipeline", …
  Variant edit = Variant::kUnknown;  // the variant that it edits pictures as; kUnknown: it does not

  bool edits() const { return edit != Variant::kUnknown; }
};

// From model_index.json, the transformer's zero_cond_t, or the caller (`asked`; empty: not given). The
// tensors of Qwen-Image, Edit and Edit-2509 are alike, so single files leave it open. Throws Error kUsage if
// `asked` is no variant's name or contradicts what the files say. `pipelines`: what the model says that it
// can do, if it says so (ModelDefaults).
RecognizedVariant RecognizeVariant(const ModelParts& parts, bool zero_cond_t, const std::string& asked,
                                   const std::vector<std::string>& pipelines = {});

}  // namespace qwen_image

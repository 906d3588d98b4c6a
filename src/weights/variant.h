// Which member of the Qwen-Image family a model is.
#pragma once

#include <string>
#include <vector>

#include "weights/model_parts.h"

namespace qwen_image {

inline const std::vector<std::string> kVariantNames = {"qwen-image", "edit", "edit-2509", "edit-2511"};

struct Variant {
  std::string name;       // one of kVariantNames ("qwen-image" is also 2512); empty: cannot tell
  std::string how;        // what told: "model_index.json: QwenImageEditPlusPipeline", …
  std::string edit = {};  // the variant that it edits pictures as; empty: it does not
};

// From model_index.json, the transformer's zero_cond_t, or the caller (`asked`; empty: not given). The
// tensors of Qwen-Image, Edit and Edit-2509 are alike, so single files leave it open. Throws Error kUsage if
// `asked` is none of kVariantNames or contradicts what the files say. `pipelines`: what the model says that
// it can do, if it says so (ModelDefaults).
Variant RecognizeVariant(const ModelParts& parts, bool zero_cond_t, const std::string& asked,
                         const std::vector<std::string>& pipelines = {});

}  // namespace qwen_image

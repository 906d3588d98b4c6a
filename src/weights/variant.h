// Which member of the Qwen-Image family a model is.
#pragma once

#include <string>

#include "weights/model_parts.h"

namespace qwen_image {

struct Variant {
  std::string name;  // "qwen-image" (also 2512), "edit", "edit-2509", "edit-2511"; empty: cannot tell
  std::string how;   // what told: "model_index.json: QwenImageEditPlusPipeline", …
};

// From model_index.json, the transformer's zero_cond_t, or --variant (`asked`; empty: not given). The tensors
// of Qwen-Image, Edit and Edit-2509 are alike, so single files leave it open. Throws Error kUsage if `asked`
// contradicts what the files say.
Variant RecognizeVariant(const ModelParts& parts, bool zero_cond_t, const std::string& asked);

}  // namespace qwen_image

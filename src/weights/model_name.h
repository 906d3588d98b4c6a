// What a model is called in records.
#pragma once

#include <string>

#include "qwen_image/model_files.h"

namespace qwen_image {

// The name of its folder or transformer, without the way there; OWNER/NAME of one that was downloaded to
// …/models--OWNER--NAME/snapshots/<commit>, as huggingface_hub keeps it.
std::string ModelName(const ModelFiles& files);

}  // namespace qwen_image

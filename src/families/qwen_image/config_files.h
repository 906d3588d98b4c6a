// The configs of a model folder as diffusers and transformers write them: for models that came without.
#pragma once

#include <string>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_encoder.h"
#include "files/json.h"

namespace qwen_image {

Json TransformerConfigJson(const TransformerConfig& config);
// `store` tells about the vision tower, if there is one.
Json TextEncoderConfigJson(const TextEncoderConfig& config, const WeightStore& store);
Json VaeConfigJson(const VaeConfig& config);
Json ModelIndexJson(const std::string& pipeline_class, bool with_processor);

}  // namespace qwen_image

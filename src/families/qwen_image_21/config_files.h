// The configs of a model folder as diffusers and transformers write them: for models that came without. That
// of the transformer is in transformer_weights.h.
#pragma once

#include "families/qwen_image_21/text_encoder.h"
#include "families/qwen_image_21/vae.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "files/json.h"

namespace qwen_image::qwen_image_21 {

// `store` tells about the vision tower, if there is one.
Json TextEncoderConfigJson(const TextEncoderConfig& config, const WeightStore& store);
Json VaeConfigJson(const VaeConfig& config);

}  // namespace qwen_image::qwen_image_21

// The configs of a model folder as diffusers and transformers write them: for models that came without.
#pragma once

#include <string>

#include "files/json.h"
#include "model/scheduler.h"
#include "model/text_encoder.h"
#include "model/transformer.h"
#include "model/vae.h"
#include "model/vision_encoder.h"

namespace qwen_image {

Json TransformerConfigJson(const TransformerConfig& config);
// `store` tells about the vision tower, if there is one.
Json TextEncoderConfigJson(const TextEncoderConfig& config, const WeightStore& store);
Json VaeConfigJson(const VaeConfig& config);
Json SchedulerConfigJson(const SchedulerConfig& config);
Json ModelIndexJson(const std::string& pipeline_class, bool with_processor);

}  // namespace qwen_image

// The words of Qwen-Image (Qwen-Image, its Edit models and their kin).
#pragma once

#include "families/checkpoint_names.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"

namespace qwen_image {

extern const WeightNames kQwenImageWeightNames;          // weight_names.cc
extern const CheckpointNames kQwenImageCheckpointNames;  // checkpoint_names.cc
extern const Vocabulary kQwenImageVocabulary;

}  // namespace qwen_image

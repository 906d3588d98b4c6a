// The words of Qwen-Image (Qwen-Image, its Edit models and their kin).
#pragma once

#include "families/checkpoint_names.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"

namespace qwen_image {

extern const WeightNames kQwenImageWeightNames;          // weight_names.cc
extern const CheckpointNames kQwenImageCheckpointNames;  // checkpoint_names.cc
extern const Vocabulary kQwenImageVocabulary;

// foreign_names.cc; see WeightNames::renamer.
Renamer QwenImageRenamer(Component component, std::span<const std::string_view> stored_names,
                         const Json& config);

// An empty tensor by which single files say that reference pictures are modulated for t = 0 (Edit-2511).
inline constexpr std::string_view kZeroCondMarker = "__index_timestep_zero__";

}  // namespace qwen_image

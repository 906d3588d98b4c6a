// The words of Qwen-Image-2.1 and its Turbo.
#pragma once

#include "families/checkpoint_names.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"

namespace qwen_image {

extern const Vocabulary kQwenImage21Vocabulary;  // as table.def calls it

namespace qwen_image_21 {

extern const WeightNames kWeightNames;          // weight_names.cc
extern const CheckpointNames kCheckpointNames;  // checkpoint_names.cc

// foreign_names.cc; see WeightNames::renamer.
// The blocks that deepstack mergers read, as an mmproj file names them, in order; empty: it names none.
std::vector<int64_t> DeepstackBlocks(std::span<const std::string_view> stored_names);
Renamer MakeRenamer(Component component, std::span<const std::string_view> stored_names, const Json& config);

}  // namespace qwen_image_21
}  // namespace qwen_image

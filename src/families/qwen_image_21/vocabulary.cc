#include "families/qwen_image_21/vocabulary.h"

#include "families/qwen_image_21/variant.h"

namespace qwen_image {

const Vocabulary kQwenImage21Vocabulary = {.name = "qwen-image-2.1",
                                           .weights = &qwen_image_21::kWeightNames,
                                           .checkpoints = &qwen_image_21::kCheckpointNames,
                                           .variants = &qwen_image_21::VariantNames};

}  // namespace qwen_image

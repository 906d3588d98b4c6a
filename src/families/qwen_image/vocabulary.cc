#include "families/qwen_image/vocabulary.h"

#include "families/qwen_image/variant.h"

namespace qwen_image {

const Vocabulary kQwenImageVocabulary = {.name = "qwen-image",
                                         .weights = &kQwenImageWeightNames,
                                         .checkpoints = &kQwenImageCheckpointNames,
                                         .variants = &VariantNames};

}  // namespace qwen_image

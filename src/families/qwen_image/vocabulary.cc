#include "families/qwen_image/vocabulary.h"

namespace qwen_image {

const Vocabulary kQwenImageVocabulary = {
    .name = "qwen-image", .weights = &kQwenImageWeightNames, .checkpoints = &kQwenImageCheckpointNames};

}  // namespace qwen_image

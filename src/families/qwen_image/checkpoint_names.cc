#include "families/qwen_image/vocabulary.h"

namespace qwen_image {

const CheckpointNames kQwenImageCheckpointNames = {};

}  // namespace qwen_image

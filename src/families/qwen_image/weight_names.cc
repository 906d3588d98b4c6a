#include "families/qwen_image/vocabulary.h"

namespace qwen_image {

const WeightNames kQwenImageWeightNames = {};

}  // namespace qwen_image

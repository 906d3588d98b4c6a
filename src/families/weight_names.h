// The names of a family's weights: in its own files, and in those that other tools write.
#pragma once

namespace qwen_image {

struct WeightNames {};

}  // namespace qwen_image

// The names of a family's checkpoints, and what is known of the tensors behind them.
#pragma once

namespace qwen_image {

struct CheckpointNames {};

}  // namespace qwen_image

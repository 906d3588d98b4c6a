// True classifier-free guidance with the pipeline's norm rescale.
#pragma once

#include "core/tensor.h"

namespace qwen_image {

// positive ← comb · ‖positive‖ / ‖comb‖ per token, where comb = negative + scale · (positive − negative).
void ApplyTrueCfg(const Tensor& negative /*[1, tokens, channels]*/, float scale, Tensor& positive /*same*/);

}  // namespace qwen_image

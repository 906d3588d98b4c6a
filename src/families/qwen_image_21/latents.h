// Latents as the transformer sees them: each is a token.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "model/token_grid.h"

namespace qwen_image::qwen_image_21 {

// [1, channels, 1, h, w] or [1, 1, channels, h, w] ↔ [1, h · w, channels]
Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid);
Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid);  // [1, channels, 1, h, w]
// A mask beside packed latents: [1, 1, height, width] → [1, h · w, channels].
Tensor PackMask(const Tensor& mask, int64_t channels, TokenGrid grid);

}  // namespace qwen_image::qwen_image_21

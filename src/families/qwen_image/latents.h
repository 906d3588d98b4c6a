// Latents: the picture's compressed form. The transformer sees them packed: a token holds 2 × 2 latents.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "model/token_grid.h"

namespace qwen_image {

// [1, channels, 1, h, w] or [1, 1, channels, h, w] ↔ [1, h/2 · w/2, 4 · channels]
Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid);
Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid);  // [1, channels, 1, h, w]
// A mask beside packed latents: [1, 1, height, width] → [1, grid tokens, 4 · channels].
Tensor PackMask(const Tensor& mask, int64_t channels, TokenGrid grid);

}  // namespace qwen_image

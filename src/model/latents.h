// Latents: the picture's compressed form. The transformer sees them packed: a token holds 2 × 2 latents.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "model/transformer.h"
#include "model/vae.h"

namespace qwen_image {

// Noise as diffusers draws it for this seed, packed: [1, grid tokens, 4 · channels].
Tensor SeededLatents(uint64_t seed, int64_t channels, TokenGrid grid);

// [1, channels, 1, h, w] or [1, 1, channels, h, w] ↔ [1, h/2 · w/2, 4 · channels]
Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid);
Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid);  // [1, channels, 1, h, w]

// Undoes the normalisation of the latents before they are decoded: x · std + mean.
void DenormalizeLatents(const VaeConfig& vae, Tensor& latents /*[1, z_dim, 1, h, w]*/);

}  // namespace qwen_image

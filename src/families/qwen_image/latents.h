// Latents: the picture's compressed form. The transformer sees them packed: a token holds 2 × 2 latents.
#pragma once

#include <cstdint>

#include "core/rng.h"
#include "core/tensor.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"

namespace qwen_image {

// [1, channels, 1, h, w] or [1, 1, channels, h, w] ↔ [1, h/2 · w/2, 4 · channels]
Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid);
Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid);  // [1, channels, 1, h, w]
// A mask beside packed latents: [1, 1, height, width] → [1, grid tokens, 4 · channels].
Tensor PackMask(const Tensor& mask, int64_t channels, TokenGrid grid);

// A picture's latents [1, z_dim, 1, h, w] from the moments of the VAE's posterior: its means, or drawn from
// it.
Tensor PosteriorMode(const Tensor& moments /*[1, 2 · z_dim, 1, h, w]*/);
Tensor PosteriorSample(const Tensor& moments /*[1, 2 · z_dim, 1, h, w]*/, TorchGenerator& generator);

// (x − mean) / std of each channel. diffusers divides for references, and multiplies by the inverse for a
// picture to begin with; the two round differently.
enum class Normalization { kDivide, kMultiplyByInverse };
void NormalizeLatents(const VaeConfig& vae, Normalization how, Tensor& latents /*[1, z_dim, 1, h, w]*/);

// Undoes the normalisation of the latents before they are decoded: x · std + mean.
void DenormalizeLatents(const VaeConfig& vae, Tensor& latents /*[1, z_dim, 1, h, w]*/);

}  // namespace qwen_image

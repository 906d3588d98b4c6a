// The latents of a VAE: from the distribution that it encodes a picture to, and normalised for a transformer.
#pragma once

#include <span>

#include "core/rng.h"
#include "core/tensor.h"

namespace qwen_image {

// A picture's latents [1, z_dim, 1, h, w] from the moments of the VAE's posterior: its means, or drawn from
// it.
Tensor PosteriorMode(const Tensor& moments /*[1, 2 · z_dim, 1, h, w]*/);
Tensor PosteriorSample(const Tensor& moments /*[1, 2 · z_dim, 1, h, w]*/, TorchGenerator& generator);

// (x − mean) / std of each channel, and back: x · std + mean. Some pipelines of diffusers compute with 1 /
// std instead, multiplying for the one and dividing for the other; that rounds differently.
enum class ScaleBy { kStd, kInverse };
void NormalizeLatents(std::span<const double> mean, std::span<const double> std, ScaleBy by,
                      Tensor& latents /*[1, z_dim, 1, h, w]*/);
void DenormalizeLatents(std::span<const double> mean, std::span<const double> std, ScaleBy by,
                        Tensor& latents /*[1, z_dim, 1, h, w]*/);

}  // namespace qwen_image

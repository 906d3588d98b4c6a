// Latents as rows of tokens: what is done with them whatever a token holds.
#pragma once

#include "core/tensor.h"

namespace qwen_image {

// The tokens of two pictures [1, tokens, channels], one behind the other.
Tensor JoinPacked(const Tensor& a, const Tensor& b);

// The forward process of flow matching: sigma · noise + (1 − sigma) · latents.
Tensor MixWithNoise(const Tensor& latents, const Tensor& noise, float sigma);
// latents ← (1 − mask) · kept + mask · latents
void RestoreUnmasked(const Tensor& mask, const Tensor& kept, Tensor& latents);

}  // namespace qwen_image

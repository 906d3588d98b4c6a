// A small picture of what a run is about to draw, to be shown while it runs.
#pragma once

#include "core/tensor.h"
#include "draw/run.h"

namespace qwen_image::draw {

// Pixels of a preview's longer side at most.
inline constexpr int64_t kMaxPreviewSide = 256;

// The picture that the latents [1, tokens, 4 · z_dim] would become if the step's velocity held to the end:
// latents − sigma · velocity, where sigma is the noise that is left in them. They are averaged down before
// they are decoded, so that it costs little beside a step.
Image Preview(const Run& run, const Tensor& latents, const Tensor& velocity, float sigma);

}  // namespace qwen_image::draw

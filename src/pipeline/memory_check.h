// Will it fit? Asked before the weights are read and before a picture is begun.
#pragma once

#include <algorithm>

#include "pipeline/pipeline_impl.h"

namespace qwen_image {

// Pictures above this area are decoded in tiles: untiled, the VAE's activations grow by about 0.6 KB per
// pixel.
constexpr int64_t kUntiledPixels = 1536 * 1536;
constexpr VaeTiling kLargePictureTiling = {.min_size = 1024, .stride = 768};

bool UseTiling(const GenerateRequest& request, int64_t width, int64_t height);

// The stages run one after the other and their pages can be dropped in between, so the largest one counts.
void CheckWeightsFit(const ModelParts& parts);  // throws Error kOutOfMemory

// What the stages of a picture need: their weights and the activations, in bytes.
struct MemoryNeed {
  int64_t encode = 0, denoise = 0, decode = 0;
  int64_t largest() const { return std::max({encode, denoise, decode}); }
};
MemoryNeed EstimateMemory(const TextEncoder& text_encoder, const Transformer& transformer, const Vae& vae,
                          const GenerateRequest& request, const Settings& settings);

void CheckWorkspaceFits(const Pipeline::Impl& model, const GenerateRequest& request,
                        const Settings& settings);

}  // namespace qwen_image

#include "model/token_latents.h"

#include <algorithm>

namespace qwen_image {

Tensor JoinPacked(const Tensor& a, const Tensor& b) {
  Tensor joined({1, a.dim(1) + b.dim(1), a.dim(2)});
  std::copy_n(b.data(), b.size(), std::copy_n(a.data(), a.size(), joined.data()));
  return joined;
}

Tensor MixWithNoise(const Tensor& latents, const Tensor& noise, float sigma) {
  Tensor mixed(latents.shape());
  for (int64_t i = 0; i < mixed.size(); ++i) mixed[i] = sigma * noise[i] + (1.0f - sigma) * latents[i];
  return mixed;
}

void RestoreUnmasked(const Tensor& mask, const Tensor& kept, Tensor& latents) {
  for (int64_t i = 0; i < latents.size(); ++i) latents[i] = (1.0f - mask[i]) * kept[i] + mask[i] * latents[i];
}

}  // namespace qwen_image

#include "model/latents.h"

#include "core/rng.h"

namespace qwen_image {
namespace {

// Calls visit(index in [channels, h, w], index in the packed [tokens, channels · 4]) for every latent.
template <typename Visit>
void ForEachLatent(int64_t channels, TokenGrid grid, const Visit& visit) {
  const int64_t height = 2 * grid.height, width = 2 * grid.width;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t token = (y / 2) * grid.width + x / 2;
        visit((c * height + y) * width + x, (token * channels + c) * 4 + (y % 2) * 2 + x % 2);
      }
    }
  }
}

}  // namespace

Tensor SeededLatents(uint64_t seed, int64_t channels, TokenGrid grid) {
  Tensor noise({1, 1, channels, 2 * grid.height, 2 * grid.width});
  TorchGenerator(seed).Normal(noise.data(), noise.size());
  return PackLatents(noise, channels, grid);
}

Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid) {
  Tensor packed({1, grid.height * grid.width, 4 * channels});
  ForEachLatent(channels, grid, [&](int64_t plain, int64_t at) { packed[at] = latents[plain]; });
  return packed;
}

Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid) {
  Tensor latents({1, channels, 1, 2 * grid.height, 2 * grid.width});
  ForEachLatent(channels, grid, [&](int64_t plain, int64_t at) { latents[plain] = packed[at]; });
  return latents;
}

void DenormalizeLatents(const VaeConfig& vae, Tensor& latents) {
  const int64_t area = latents.dim(3) * latents.dim(4);
  for (int64_t c = 0; c < vae.z_dim; ++c) {
    // The pipeline divides by the inverse; so do we, to round alike.
    const float inverse_std = 1.0f / static_cast<float>(vae.latents_std[static_cast<size_t>(c)]);
    const auto mean = static_cast<float>(vae.latents_mean[static_cast<size_t>(c)]);
    for (int64_t p = c * area; p < (c + 1) * area; ++p) latents[p] = latents[p] / inverse_std + mean;
  }
}

}  // namespace qwen_image

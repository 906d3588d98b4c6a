// The VAE in tiles.
#include "families/qwen_image/vae.h"

namespace qwen_image {

Tensor Vae::DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const {
  const int64_t scale = config_.scale_factor();
  CheckTiling(tiling, scale);
  Tensor image({1, config_.input_channels, latents.dim(3) * scale, latents.dim(4) * scale});
  ProcessTiles(
      latents, DecodedTiles(tiling, scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return DecodeTile(tile, compute.ForPass(index, count), {});
      },
      image);
  store_.ThrowIfDamaged();
  return image;
}

Tensor Vae::EncodeTiled(const Tensor& image, const VaeTiling& tiling, const Compute& compute) const {
  const int64_t scale = config_.scale_factor();
  CheckTiling(tiling, scale);
  Tensor moments({1, 2 * config_.z_dim, 1, image.dim(2) / scale, image.dim(3) / scale});
  ProcessTiles(
      image, EncodedTiles(tiling, scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return EncodeTile(tile, compute.ForPass(index, count), {});
      },
      moments);
  store_.ThrowIfDamaged();
  return moments;
}

}  // namespace qwen_image

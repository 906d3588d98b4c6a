#include "families/qwen_image/autoencoder.h"

#include "families/qwen_image/latents.h"
#include "model/vae_latents.h"

namespace qwen_image {

Geometry GeometryOf(const VaeConfig& config) {
  // Untiled, the VAE's activations grow by about 0.6 KB per pixel.
  return {.pixel_channels = config.input_channels,
          .latent_channels = config.z_dim,
          .pixels_per_latent = config.scale_factor(),
          .latents_per_token = 2,
          .side_multiple = 2 * config.scale_factor(),
          .untiled_pixels = 1536 * 1536};
}

Tensor QwenImageAutoencoder::Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const {
  return PreprocessForVae(image, size.width, size.height, pool);
}

Tensor QwenImageAutoencoder::Encode(const Tensor& pixels, bool tiled, const Compute& compute,
                                    const Tap& tap) const {
  return tiled ? vae_.EncodeTiled(pixels, kLargePictureTiling, compute) : vae_.Encode(pixels, compute, tap);
}

Tensor QwenImageAutoencoder::Latents(const Tensor& encoded, TokenGrid grid, TorchGenerator* generator) const {
  Tensor latents = generator ? PosteriorSample(encoded, *generator) : PosteriorMode(encoded);
  // As diffusers does for a picture to begin with, and for references.
  NormalizeLatents(vae_.config().latents_mean, vae_.config().latents_std,
                   generator ? ScaleBy::kInverse : ScaleBy::kStd, latents);
  vae_.store().ThrowIfDamaged();
  return Pack(latents, grid);
}

Tensor QwenImageAutoencoder::Pack(const Tensor& plain, TokenGrid grid) const {
  return PackLatents(plain, vae_.config().z_dim, grid);
}

Tensor QwenImageAutoencoder::PackMask(const Tensor& mask, TokenGrid grid) const {
  return qwen_image::PackMask(mask, vae_.config().z_dim, grid);
}

Shape QwenImageAutoencoder::DecodedShape(TokenGrid grid) const {
  return {1, vae_.config().z_dim, 1, 2 * grid.height, 2 * grid.width};
}

Tensor QwenImageAutoencoder::Unpack(const Tensor& packed, TokenGrid grid) const {
  Tensor latents = UnpackLatents(packed, vae_.config().z_dim, grid);
  DenormalizeLatents(vae_.config().latents_mean, vae_.config().latents_std, ScaleBy::kInverse, latents);
  return latents;
}

Tensor QwenImageAutoencoder::Decode(const Tensor& latents, bool tiled, const Compute& compute,
                                    const Tap& tap) const {
  return tiled ? vae_.DecodeTiled(latents, kLargePictureTiling, compute) : vae_.Decode(latents, compute, tap);
}

}  // namespace qwen_image

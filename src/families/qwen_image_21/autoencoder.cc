#include "families/qwen_image_21/autoencoder.h"

#include <algorithm>

#include "families/qwen_image_21/latents.h"
#include "model/vae_latents.h"

namespace qwen_image::qwen_image_21 {
namespace {

Image WithAlpha(const Image& image) {
  if (image.has_alpha()) return image;
  Image rgba{image.width, image.height, {}, kPictureChannels};
  rgba.pixels.reserve(image.pixels.size() / 3 * 4);
  for (size_t i = 0; i + 2 < image.pixels.size(); i += 3)
    rgba.pixels.insert(rgba.pixels.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], 255});
  return rgba;
}

constexpr int64_t kFloat = sizeof(float);

// What a block holds at most, in floats for each pixel of the picture. Going up: its input, the result of its
// residual blocks, and that four times as large. The last one does not grow.
int64_t DecoderFloats(const VaeConfig& config) {
  int64_t most = 0, scale = config.scale_factor() * config.scale_factor();
  for (const VaeLevel& level : DecoderLevels(config)) {
    most = std::max(most, (level.in + (level.resamples ? 5 : 1) * level.out) / scale);
    scale /= 4;
  }
  return most;
}

// Going down: its input and the result of its first residual block, if the width changes, and in a quarter of
// the pixels the shortcut and the result.
int64_t EncoderFloats(const VaeConfig& config) {
  int64_t most = 0, scale = 1;
  for (const VaeLevel& level : EncoderLevels(config)) {
    const int64_t whole = level.in == level.out ? level.in : level.in + level.out;
    most = std::max(most, (whole + level.out / 2) / scale);
    scale *= 4;
  }
  return most;
}

}  // namespace

Geometry GeometryOf(const VaeConfig& config) {
  // Untiled, the VAE's activations grow by about 2 KB per pixel; 3 GB are enough for a picture of this size.
  return {.pixel_channels = kPictureChannels,
          .latent_channels = config.z_dim,
          .pixels_per_latent = config.scale_factor(),
          .latents_per_token = 1,
          .side_multiple = 2 * config.scale_factor(),
          .untiled_pixels = 1152 * 1024};
}

int64_t VaeWorkspace(const VaeConfig& config, const Geometry& geometry, const Workload& workload) {
  constexpr int64_t kBand = 36 * 1000 * 1000;  // of a residual block
  constexpr int64_t kTile = kLargePictureTiling.min_size;
  int64_t bytes = 0, pictures = 0;
  const auto consider = [&](ImageSize size, int64_t floats_per_pixel) {
    const bool tiled = geometry.Tiles(workload.tiling, size);
    const int64_t pixels =
        std::min(size.width, tiled ? kTile : size.width) * std::min(size.height, tiled ? kTile : size.height);
    bytes = std::max(bytes, pixels * floats_per_pixel * kFloat);
    // In two layouts, or beside two rows of tiles, which overlap by a third.
    const int64_t lines = size.height + (tiled ? 2 * kTile * 4 / 3 : size.height);
    pictures = std::max(pictures, lines * size.width * kPictureChannels * kFloat);
  };
  consider(workload.picture, std::max(DecoderFloats(config), EncoderFloats(config)));
  for (const EditInputSizes& sizes : workload.references) consider(sizes.vae, EncoderFloats(config));
  const int64_t widest = std::max(config.base_dim, config.decoder_base_dim) *
                         *std::max_element(config.dim_mult.begin(), config.dim_mult.end());
  // The filters of two convolutions in the form they are multiplied in: 36 numbers for 9.
  return bytes + pictures + kBand + 2 * 36 * widest * widest * kFloat;
}

Tensor QwenImage21Autoencoder::Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const {
  return PreprocessForVae(WithAlpha(image), size.width, size.height, pool);
}

Tensor QwenImage21Autoencoder::Encode(const Tensor& pixels, bool tiled, const Compute& compute,
                                      const Tap& tap) const {
  return tiled ? vae_.EncodeTiled(pixels, kLargePictureTiling, compute) : vae_.Encode(pixels, compute, tap);
}

Tensor QwenImage21Autoencoder::Latents(const Tensor& encoded, TokenGrid grid,
                                       TorchGenerator* generator) const {
  Tensor latents = generator ? PosteriorSample(encoded, *generator) : PosteriorMode(encoded);
  NormalizeLatents(vae_.config().latents_mean, vae_.config().latents_std, ScaleBy::kStd, latents);
  vae_.store().ThrowIfDamaged();
  return Pack(latents, grid);
}

Tensor QwenImage21Autoencoder::Pack(const Tensor& plain, TokenGrid grid) const {
  return PackLatents(plain, vae_.config().z_dim, grid);
}

Tensor QwenImage21Autoencoder::PackMask(const Tensor& mask, TokenGrid grid) const {
  return qwen_image_21::PackMask(mask, vae_.config().z_dim, grid);
}

Shape QwenImage21Autoencoder::DecodedShape(TokenGrid grid) const {
  return {1, vae_.config().z_dim, 1, grid.height, grid.width};
}

Tensor QwenImage21Autoencoder::Unpack(const Tensor& packed, TokenGrid grid) const {
  Tensor latents = UnpackLatents(packed, vae_.config().z_dim, grid);
  DenormalizeLatents(vae_.config().latents_mean, vae_.config().latents_std, ScaleBy::kStd, latents);
  return latents;
}

Tensor QwenImage21Autoencoder::Decode(const Tensor& latents, bool tiled, const Compute& compute,
                                      const Tap& tap) const {
  return tiled ? vae_.DecodeTiled(latents, kLargePictureTiling, compute) : vae_.Decode(latents, compute, tap);
}

}  // namespace qwen_image::qwen_image_21

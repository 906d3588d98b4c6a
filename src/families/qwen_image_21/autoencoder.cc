#include "families/qwen_image_21/autoencoder.h"

#include <algorithm>

#include "families/qwen_image_21/latents.h"
#include "files/colour.h"
#include "model/vae_latents.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kFloat = sizeof(float);

// The filters of two convolutions in the form they are multiplied in, 36 numbers for 9. Their memory is given
// back when it is more than four times of what is needed.
int64_t FilterBytes(int64_t widest, int64_t width) {
  return 2 * 36 * kFloat * std::min(widest * widest, 4 * width * width);
}

int64_t WidestOf(const std::vector<VaeLevel>& levels) {
  int64_t widest = 0;
  for (const VaeLevel& level : levels) widest = std::max({widest, level.in, level.out});
  return widest;
}

// What the blocks hold at most. Going up: the input, the result of the residual blocks, and that four times
// as large. The last one does not grow.
int64_t DecoderBytes(const VaeConfig& config, int64_t pixels) {
  const std::vector<VaeLevel> levels = DecoderLevels(config);
  int64_t most = 0, scale = config.scale_factor() * config.scale_factor();
  for (const VaeLevel& level : levels) {
    const int64_t floats = level.in + (level.resamples ? 5 : 1) * level.out;
    most = std::max(most, pixels / scale * floats * kFloat + FilterBytes(WidestOf(levels), level.out));
    scale /= 4;
  }
  return most;
}

// Going down: the input and the result of the first residual block, if the width changes, and in a quarter of
// the pixels the shortcut and the result.
int64_t EncoderBytes(const VaeConfig& config, int64_t pixels) {
  const std::vector<VaeLevel> levels = EncoderLevels(config);
  int64_t most = 0, scale = 1;
  for (const VaeLevel& level : levels) {
    const int64_t floats = (level.in == level.out ? 0 : level.in) + level.out + level.out / 2;
    most = std::max(most, pixels / scale * floats * kFloat + FilterBytes(WidestOf(levels), level.out));
    scale *= 4;
  }
  return most;
}

}  // namespace

Geometry GeometryOf(const VaeConfig& config) {
  // 3 GB are enough for pictures of these sizes: the activations take 2 KB per pixel on the way out, and 0.6
  // KB on the way in.
  return {.pixel_channels = kPictureChannels,
          .latent_channels = config.z_dim,
          .pixels_per_latent = config.scale_factor(),
          .latents_per_token = 1,
          .side_multiple = 2 * config.scale_factor(),
          .untiled_pixels = 1152 * 1024,
          .untiled_input_pixels = 2112 * 2048};
}

// Beside what the blocks hold: a band of a residual block, what threads and the attention work in, and the
// picture in two layouts, or beside two rows of tiles, which overlap by a third.
int64_t VaeWorkspace(const VaeConfig& config, const Geometry& geometry, const Workload& workload) {
  constexpr int64_t kBand = 36 * 1000 * 1000, kThreads = 220 * 1000 * 1000;
  constexpr int64_t kTile = kLargePictureTiling.min_size;
  int64_t most = 0;
  const auto consider = [&](ImageSize size, bool tiled, auto bytes_of) {
    const int64_t width = tiled ? std::min(size.width, kTile) : size.width;
    const int64_t height = tiled ? std::min(size.height, kTile) : size.height;
    const int64_t lines = size.height + (tiled ? 2 * kTile * 4 / 3 : size.height);
    const int64_t picture = lines * size.width * kPictureChannels * kFloat;
    most = std::max(most, bytes_of(config, width * height) + picture);
  };
  consider(workload.picture, geometry.Tiles(workload.tiling, workload.picture), DecoderBytes);
  for (const EditInputSizes& sizes : workload.references)
    consider(sizes.vae, geometry.TilesInput(workload.tiling, sizes.vae), EncoderBytes);
  return most + kBand + kThreads;
}

Tensor QwenImage21Autoencoder::Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const {
  return PreprocessForVae(WithChannels(image, kPictureChannels), size.width, size.height, pool);
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

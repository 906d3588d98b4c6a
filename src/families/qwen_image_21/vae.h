// The VAE of Qwen-Image-2.1 (AutoencoderKLQwenImage21) for single pictures: RGBA, 64 channels, 16 pixels for
// each latent.
//
// It comes from a video model. Its convolutions are plain two-dimensional ones, and no time_conv ever runs
// for a single frame. Around each of its blocks leads a shortcut without weights that would also join or
// repeat frames (see Folding). Activations are channels-last ([height, width, channels]).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "families/qwen_image/vae_blocks.h"
#include "model/tiles.h"
#include "ops/ops.h"
#include "weights/store.h"

namespace qwen_image::qwen_image_21 {

// Picture channels, in and out.
inline constexpr int64_t kPictureChannels = 4;

struct VaeConfig {
  int64_t base_dim = 96;
  int64_t decoder_base_dim = 144;
  int64_t z_dim = 64;
  std::vector<int64_t> dim_mult = {1, 2, 4, 8, 8};
  int64_t num_res_blocks = 2;
  std::vector<bool> temperal_downsample = {false, true, true, true};  // diffusers' spelling
  std::vector<double> latents_mean, latents_std;                      // [z_dim]

  int64_t scale_factor() const { return int64_t{1} << (dim_mult.size() - 1); }  // pixels per latent
};

// A block of one level: its widths, and how its input lies in its output or the other way round. The
// decoder's last block has no shortcut, and does not use its folding.
struct VaeLevel {
  int64_t in = 0, out = 0;
  Folding folding;
  bool resamples = false;
};
std::vector<VaeLevel> EncoderLevels(const VaeConfig& config);
std::vector<VaeLevel> DecoderLevels(const VaeConfig& config);

// From config.json; without one, from the tensors. Throws Error kBadInput.
VaeConfig ReadVaeConfig(const WeightStore& store);
// The widths stand in the biases. Where frames are joined, time_conv tells, even though it is not used; files
// that have dropped all of them are taken for the published VAE, as are the latents' mean and std.
VaeConfig ConfigOfTensors(const WeightStore& store);

// The weights: small ones as floats, large ones where they lie.
struct VaeWeights {
  struct DownBlock {
    VaeLevel level;
    std::vector<VaeResidualBlock> resnets;
    std::optional<Conv> downsampler;  // resample.1
  };
  struct UpBlock {
    VaeLevel level;
    std::vector<VaeResidualBlock> resnets;
    std::optional<Conv3x3Layer> upsampler;  // resample.1
  };
  struct Encoder {
    Conv3x3Layer conv_in;
    std::vector<DownBlock> down_blocks;
    VaeMidBlock mid_block;
    std::vector<float> norm_out;
    Conv3x3Layer conv_out;
  };
  struct Decoder {
    Conv3x3Layer conv_in;
    VaeMidBlock mid_block;
    std::vector<UpBlock> up_blocks;
    std::vector<float> norm_out;
    Conv3x3Layer conv_out;
  };

  // Throws Error kBadInput that lists all that is missing or does not fit.
  VaeWeights(const VaeConfig& config, WeightStore& store);

  Encoder encoder;
  Conv quant_conv, post_quant_conv;
  Decoder decoder;
};

class Vae {
 public:
  explicit Vae(WeightStore store);

  const VaeConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }

  // Latents [1, z_dim, 1, h, w] (already × std + mean) → picture [1, 4, 16h, 16w] in [−1, 1].
  Tensor Decode(const Tensor& latents, const Compute& compute, const Tap& tap = {}) const;
  // The same tile by tile, if it is larger than a tile: little memory for large pictures.
  Tensor DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const;

  // Picture [1, 4, h, w] in [−1, 1] → the posterior's moments [1, 2 · z_dim, 1, h / 16, w / 16]: means, then
  // log-variances.
  Tensor Encode(const Tensor& image, const Compute& compute, const Tap& tap = {}) const;
  Tensor EncodeTiled(const Tensor& image, const VaeTiling& tiling, const Compute& compute) const;

  const VaeWeights& weights() const { return weights_; }
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 private:
  // Without clamping: the whole picture, or one tile of it.
  Tensor DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const;
  Tensor EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const;
  void CheckSides(const Tensor& image) const;

  VaeConfig config_;
  WeightStore store_;
  VaeWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image::qwen_image_21

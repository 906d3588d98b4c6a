// The VAE of Qwen-Image-2.1 (AutoencoderKLQwenImage21) for single pictures: RGBA, 64 channels, 16 pixels for
// each latent.
//
// It comes from a video model. Its convolutions are plain two-dimensional ones, and no time_conv ever runs
// for a single frame. Around each of its blocks leads a shortcut without weights that would also join or
// repeat frames (see Folding). Activations are channels-last ([height, width, channels]).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "families/wan_vae.h"
#include "families/wan_vae_blocks.h"
#include "ops/interface.h"
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

class Vae final : public WanVae {
 public:
  explicit Vae(WeightStore store);

  const VaeConfig& config() const { return config_; }
  const VaeWeights& weights() const { return weights_; }

 private:
  Form form() const override;
  Array RunEncoder(Ops& ops, const Compute& compute, const Array& image, const Tap& tap) const override;
  Array RunDecoder(Ops& ops, const Compute& compute, const Array& latents, const Tap& tap) const override;

  VaeConfig config_;
  VaeWeights weights_;
};

}  // namespace qwen_image::qwen_image_21

// The VAE (AutoencoderKLQwenImage) for single pictures.
//
// It is a video model: its convolutions are causal in time, two zero frames stand before the first one. A
// single frame therefore meets only the last temporal slice of every 3 × 3 × 3 kernel, and no time_conv ever
// runs. So the pass here is two-dimensional, and activations are channels-last ([height, width, channels]).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "families/wan_vae.h"
#include "families/wan_vae_blocks.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image {

struct VaeConfig {
  int64_t base_dim = 96;
  int64_t z_dim = 16;
  int64_t input_channels = 3;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  std::vector<double> attn_scales;
  std::vector<double> latents_mean, latents_std;  // [z_dim]

  int64_t scale_factor() const { return int64_t{1} << (dim_mult.size() - 1); }  // pixels per latent
};

// From config.json; without one, from the shapes of the tensors and the published VAE's constants. Throws
// Error kBadInput.
VaeConfig ReadVaeConfig(const WeightStore& store);

// The weights: small ones as floats, large ones where they lie.
struct VaeWeights {
  struct Downsample {
    Conv conv;  // resample.1
  };
  struct UpBlock {
    std::vector<VaeResidualBlock> resnets;
    std::optional<Conv3x3Layer> upsampler;  // resample.1
  };
  struct Encoder {
    Conv3x3Layer conv_in;
    std::vector<std::variant<VaeResidualBlock, VaeAttentionBlock, Downsample>> down_blocks;
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

}  // namespace qwen_image

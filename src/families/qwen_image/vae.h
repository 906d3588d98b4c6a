// The VAE (AutoencoderKLQwenImage) for single pictures.
//
// It is a video model: its convolutions are causal in time, two zero frames stand before the first one. A
// single frame therefore meets only the last temporal slice of every 3 × 3 × 3 kernel, and no time_conv ever
// runs. So the pass here is two-dimensional, and activations are channels-last ([height, width, channels]).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "families/qwen_image/vae_blocks.h"
#include "model/tiles.h"
#include "ops/ops.h"
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

class Vae {
 public:
  explicit Vae(WeightStore store);

  const VaeConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }

  // Latents [1, z_dim, 1, h, w] (already × std + mean) → picture [1, 3, 8h, 8w] in [−1, 1].
  Tensor Decode(const Tensor& latents, const Compute& compute, const Tap& tap = {}) const;
  // The same tile by tile: little memory for large pictures. Not clamped, as in diffusers.
  Tensor DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const;

  // Picture [1, 3, h, w] in [−1, 1] → the posterior's moments [1, 2 · z_dim, 1, h / 8, w / 8]: means, then
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

  VaeConfig config_;
  WeightStore store_;
  VaeWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image

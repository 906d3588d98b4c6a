// The VAE's forward passes. Weights: vae_weights.cc.
#include "families/qwen_image/vae.h"

#include <utility>

namespace qwen_image {
namespace {

class VaePass : public VaeBlockPass {
 public:
  using VaeBlockPass::VaeBlockPass;

  Array Encode(const VaeWeights& weights, const Array& image, const Tap& tap) {
    return EncodeWith(weights, image, tap, [&](const auto& block, Array& x, const Tap& block_tap) {
      std::visit([&](const auto& kind) { Run(kind, x, block_tap); }, block);
    });
  }

  Array Decode(const VaeWeights& weights, const Array& latents, const Tap& tap) {
    return DecodeWith(weights, latents, tap,
                      [&](const auto& block, Array& x, const Tap& block_tap) { Run(block, x, block_tap); });
  }

 private:
  using VaeBlockPass::Run;
  void Run(const VaeWeights::Downsample& w, Array& x, const Tap& tap) { Downsample(w.conv, x, tap); }

  void Run(const VaeWeights::UpBlock& w, Array& x, const Tap& tap) {
    Run(w.resnets, x, tap);
    if (w.upsampler) Upsample(*w.upsampler, x, tap.Under(".upsamplers.0"));
    Show(tap, "", x);
  }
};

}  // namespace

Vae::Vae(WeightStore store)
    : WanVae(std::move(store)), config_(ReadVaeConfig(store_)), weights_(config_, store_) {}

WanVae::Form Vae::form() const {
  return {.scale = config_.scale_factor(),
          .z_dim = config_.z_dim,
          .channels = config_.input_channels,
          .clamps_tiles = false};
}

Array Vae::RunEncoder(Ops& ops, const Compute& compute, const Array& image, const Tap& tap) const {
  return VaePass(ops, compute).Encode(weights_, image, tap);
}

Array Vae::RunDecoder(Ops& ops, const Compute& compute, const Array& latents, const Tap& tap) const {
  return VaePass(ops, compute).Decode(weights_, latents, tap);
}

}  // namespace qwen_image

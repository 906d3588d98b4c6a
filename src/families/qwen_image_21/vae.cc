// The VAE's forward passes. Weights: vae_weights.cc.
#include "families/qwen_image_21/vae.h"

#include <utility>

namespace qwen_image::qwen_image_21 {
namespace {

class VaePass : public VaeBlockPass {
 public:
  using VaeBlockPass::VaeBlockPass;

  Array Encode(const VaeWeights& weights, const Array& image, const Tap& tap) {
    return EncodeWith(weights, image, tap,
                      [&](const auto& block, Array& x, const Tap& block_tap) { Run(block, x, block_tap); });
  }

  Array Decode(const VaeWeights& weights, const Array& latents, const Tap& tap) {
    return DecodeWith(weights, latents, tap,
                      [&](const auto& block, Array& x, const Tap& block_tap) { Run(block, x, block_tap); });
  }

 private:
  using VaeBlockPass::Run;

  // The shortcut comes first: it is smaller than the input, which the residual blocks write to.
  void Run(const VaeWeights::DownBlock& w, Array& x, const Tap& tap) {
    Array shortcut = ops_.FoldedMeans(w.level.folding, x, w.level.out);
    Run(w.resnets, x, tap);
    if (w.downsampler) Downsample(*w.downsampler, x, tap.Under(".downsampler"));
    Show(tap, ".avg_shortcut", shortcut);
    ops_.Add(shortcut, x);
    End(x, tap);
  }

  // Here the shortcut is larger than the input, which is kept for it.
  void Run(const VaeWeights::UpBlock& w, Array& x, const Tap& tap) {
    Array input;
    if (w.upsampler) input = w.resnets[0].conv_shortcut ? x : Copy(x);
    Run(w.resnets, x, tap);
    if (w.upsampler) {
      Upsample(*w.upsampler, x, tap.Under(".upsampler"));
      ops_.AddUnfolded(w.level.folding, input, x, ".avg_shortcut", tap);
    }
    End(x, tap);
  }

  // For a residual block that does not change the width, and so writes to its input.
  Array Copy(const Array& x) { return ops_.FoldedMeans({}, x, x.dim(2)); }
};

}  // namespace

Vae::Vae(WeightStore store)
    : WanVae(std::move(store)), config_(ReadVaeConfig(store_)), weights_(config_, store_) {}

WanVae::Form Vae::form() const {
  return {.scale = config_.scale_factor(),
          .z_dim = config_.z_dim,
          .channels = kPictureChannels,
          .clamps_tiles = true};
}

Array Vae::RunEncoder(Ops& ops, const Compute& compute, const Array& image, const Tap& tap) const {
  return VaePass(ops, compute).Encode(weights_, image, tap);
}

Array Vae::RunDecoder(Ops& ops, const Compute& compute, const Array& latents, const Tap& tap) const {
  return VaePass(ops, compute).Decode(weights_, latents, tap);
}

}  // namespace qwen_image::qwen_image_21

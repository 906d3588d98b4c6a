// The VAE's forward passes. Weights: vae_weights.cc. Tiling: vae_tiling.cc.
#include "families/qwen_image/vae.h"

#include <utility>

#include "core/fail.h"

namespace qwen_image {
namespace {

class VaePass : public VaeBlockPass {
 public:
  using VaeBlockPass::VaeBlockPass;

  Array Encode(const VaeWeights& weights, const Array& image, const Tap& tap) {
    const VaeWeights::Encoder& w = weights.encoder;
    const Tap encoder = tap.Under("encoder.");
    Array x = ops_.Convolve(w.conv_in, image, false);
    Show(encoder, "conv_in", x);
    for (size_t i = 0; i < w.down_blocks.size(); ++i) {
      compute_.Continue(i, w.down_blocks.size());
      const Tap block_tap = encoder.Under("down_blocks.", static_cast<int64_t>(i), "");
      std::visit([&](const auto& block) { Run(block, x, block_tap); }, w.down_blocks[i]);
    }
    Run(w.mid_block, x, encoder.Under("mid_block"));
    x = Head(w.norm_out, w.conv_out, x, encoder);
    Array moments = ops_.Convolve(weights.quant_conv, x, 1, 0);
    Show(tap, "quant_conv", moments);
    return moments;
  }

  Array Decode(const VaeWeights& weights, const Array& latents, const Tap& tap) {
    const VaeWeights::Decoder& w = weights.decoder;
    const Tap decoder = tap.Under("decoder.");
    Array z = ops_.Convolve(weights.post_quant_conv, latents, 1, 0);
    Show(tap, "post_quant_conv", z);
    Array x = ops_.Convolve(w.conv_in, z, false);
    Show(decoder, "conv_in", x);
    Run(w.mid_block, x, decoder.Under("mid_block"));
    for (size_t i = 0; i < w.up_blocks.size(); ++i) {
      compute_.Continue(i, w.up_blocks.size());
      Run(w.up_blocks[i], x, decoder.Under("up_blocks.", static_cast<int64_t>(i), ""));
    }
    return Head(w.norm_out, w.conv_out, x, decoder);
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
    : config_(ReadVaeConfig(store)), store_(std::move(store)), weights_(config_, store_) {}

void Vae::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

Tensor Vae::DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  const std::unique_ptr<Ops> ops = backend_->Start(compute);
  Tensor image;
  ops->Run([&] {
    const Array decoded = VaePass(*ops, compute).Decode(weights_, ops->FromPicture(latents), tap);
    image = ops->ToPicture(decoded, Frames::kNone);
  });
  return image;
}

Tensor Vae::EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const {
  const std::unique_ptr<Ops> ops = backend_->Start(compute);
  Tensor moments;
  ops->Run([&] {
    const Array encoded = VaePass(*ops, compute).Encode(weights_, ops->FromPicture(image), tap);
    moments = ops->ToPicture(encoded, Frames::kOne);
  });
  return moments;
}

Tensor Vae::Decode(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  Tensor image = DecodeTile(latents, compute, tap);
  store_.ThrowIfDamaged();
  ClampPixels(image);
  return image;
}

Tensor Vae::Encode(const Tensor& image, const Compute& compute, const Tap& tap) const {
  if (image.dim(2) % config_.scale_factor() != 0 || image.dim(3) % config_.scale_factor() != 0) {
    Fail(ErrorKind::kUsage, "the VAE encodes pictures whose sides are multiples of {}, not {}x{}",
         config_.scale_factor(), image.dim(3), image.dim(2));
  }
  Tensor moments = EncodeTile(image, compute, tap);
  store_.ThrowIfDamaged();
  return moments;
}

}  // namespace qwen_image

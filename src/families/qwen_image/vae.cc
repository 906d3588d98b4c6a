// The VAE's forward passes. Weights: vae_weights.cc. Tiling: vae_tiling.cc.
#include "families/qwen_image/vae.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/fail.h"

namespace qwen_image {
namespace {

// One pass through encoder or decoder: every method is a module's forward.
class VaePass {
 public:
  VaePass(Ops& ops, const Compute& compute) : ops_(ops), compute_(compute) {}

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
  void Run(const VaeWeights::ResidualBlock& w, Array& x, const Tap& tap) {
    const Tap inside = tap.Under(".");
    if (w.conv_shortcut) {
      Array sum = ops_.Convolve(*w.conv_shortcut, x, 1, 0);
      Show(inside, "conv_shortcut", sum);
      ops_.AddBranch(w.branch, x, sum, inside);
      x = std::move(sum);
    } else {
      ops_.AddBranch(w.branch, x, x, inside);
    }
    End(x, tap);
  }

  void Run(const VaeWeights::AttentionBlock& w, Array& x, const Tap& tap) {
    const Tap inside = tap.Under(".");
    const int64_t pixels = x.dim(0) * x.dim(1), channels = x.dim(2);
    Array y = ops_.ChannelNorm(w.norm, x);
    Show(inside, "norm", y, Frames::kNone);
    Array qkv = ops_.Convolve(w.to_qkv, y, 1, 0);
    Show(inside, "to_qkv", qkv, Frames::kNone);

    qkv = ops_.Reshaped(qkv, {1, pixels, 3 * channels});
    const Joint q = {ops_.Cols(qkv, 0, channels)}, k = {ops_.Cols(qkv, channels, channels)},
                v = {ops_.Cols(qkv, 2 * channels, channels)};
    Joint attended = {ops_.Reshaped(y, {1, pixels, channels})};
    ops_.Attend({.q = &q, .k = &k, .v = &v, .heads = 1, .kv_heads = 1, .head_dim = channels}, attended,
                inside);

    y = ops_.Convolve(w.proj, ops_.Reshaped(attended[0], x.shape), 1, 0);
    Show(inside, "proj", y, Frames::kNone);
    ops_.Add(y, x);
    End(x, tap);
  }

  void Run(const VaeWeights::Downsample& w, Array& x, const Tap& tap) {
    x = ops_.Convolve(w.conv, x, 2, 1);
    Show(tap, ".resample.1", x, Frames::kNone);
    End(x, tap);
  }

  void Run(const VaeWeights::Upsample& w, Array& x, const Tap& tap) {
    x = ops_.Convolve(w.conv, x, true);
    Show(tap, ".resample.1", x, Frames::kNone);
    End(x, tap);
  }

  void Run(const VaeWeights::MidBlock& w, Array& x, const Tap& tap) {
    Run(w.resnet0, x, tap.Under(".resnets.0"));
    Run(w.attention, x, tap.Under(".attentions.0"));
    Run(w.resnet1, x, tap.Under(".resnets.1"));
    Show(tap, "", x);
  }

  void Run(const VaeWeights::UpBlock& w, Array& x, const Tap& tap) {
    for (size_t i = 0; i < w.resnets.size(); ++i)
      Run(w.resnets[i], x, tap.Under(".resnets.", static_cast<int64_t>(i), ""));
    if (w.upsampler) Run(*w.upsampler, x, tap.Under(".upsamplers.0"));
    Show(tap, "", x);
  }

  // norm_out, SiLU and conv_out: the end of both encoder and decoder.
  Array Head(const std::vector<float>& norm_out, const Conv3x3Layer& conv_out, const Array& x,
             const Tap& tap) {
    Array y = ops_.NormSiluConvolve(norm_out, "norm_out", conv_out, x, tap);
    Show(tap, "conv_out", y);
    return y;
  }

  void Show(const Tap& tap, std::string_view name, Array& x, Frames frames = Frames::kOne) {
    ops_.ShowPicture(tap, name, x, frames);
  }

  // The end of a module whose result is large: a device that collects work computes it now.
  void End(Array& x, const Tap& tap) {
    Show(tap, "", x);
    ops_.Finish(std::array{&x});
    compute_.cancel.ThrowIfCancelled();
  }

  Ops& ops_;
  const Compute& compute_;
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
  std::transform(image.data(), image.data() + image.size(), image.data(), [](float v) {
    return v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
  });  // NaN stays NaN
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

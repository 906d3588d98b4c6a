// The VAE's forward passes, whole and in tiles. Weights: vae_weights.cc.
#include "families/qwen_image_21/vae.h"

#include <utility>

#include "core/fail.h"

namespace qwen_image::qwen_image_21 {
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
      Run(w.down_blocks[i], x, encoder.Under("down_blocks.", static_cast<int64_t>(i), ""));
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

Tensor Vae::DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const {
  const int64_t scale = config_.scale_factor(), height = latents.dim(3) * scale,
                width = latents.dim(4) * scale;
  CheckTiling(tiling, scale);
  if (height <= tiling.min_size && width <= tiling.min_size) return Decode(latents, compute);
  Tensor image({1, kPictureChannels, height, width});
  ProcessTiles(
      latents, DecodedTiles(tiling, scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return DecodeTile(tile, compute.ForPass(index, count), {});
      },
      image);
  store_.ThrowIfDamaged();
  ClampPixels(image);
  return image;
}

void Vae::CheckSides(const Tensor& image) const {
  if (image.dim(2) % config_.scale_factor() == 0 && image.dim(3) % config_.scale_factor() == 0) return;
  Fail(ErrorKind::kUsage, "the VAE encodes pictures whose sides are multiples of {}, not {}x{}",
       config_.scale_factor(), image.dim(3), image.dim(2));
}

Tensor Vae::Encode(const Tensor& image, const Compute& compute, const Tap& tap) const {
  CheckSides(image);
  Tensor moments = EncodeTile(image, compute, tap);
  store_.ThrowIfDamaged();
  return moments;
}

Tensor Vae::EncodeTiled(const Tensor& image, const VaeTiling& tiling, const Compute& compute) const {
  const int64_t scale = config_.scale_factor();
  CheckTiling(tiling, scale);
  CheckSides(image);
  if (image.dim(2) <= tiling.min_size && image.dim(3) <= tiling.min_size) return Encode(image, compute);
  Tensor moments({1, 2 * config_.z_dim, 1, image.dim(2) / scale, image.dim(3) / scale});
  ProcessTiles(
      image, EncodedTiles(tiling, scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return EncodeTile(tile, compute.ForPass(index, count), {});
      },
      moments);
  store_.ThrowIfDamaged();
  return moments;
}

}  // namespace qwen_image::qwen_image_21

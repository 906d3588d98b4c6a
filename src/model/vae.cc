// The VAE's forward passes. Weights: vae_weights.cc. Tiling: vae_tiling.cc.
#include "model/vae.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"

namespace qwen_image {
namespace {

enum class Frames { kNone, kOne };  // whether the reference's tensor has a frame axis at this point

Tensor ChannelsFirst(const Tensor& x /*[h, w, c]*/, Frames frames) {
  const int64_t pixels = x.dim(0) * x.dim(1), channels = x.dim(2);
  Tensor y(frames == Frames::kOne ? Shape{1, channels, 1, x.dim(0), x.dim(1)}
                                  : Shape{1, channels, x.dim(0), x.dim(1)});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t p = 0; p < pixels; ++p) y[c * pixels + p] = x[p * channels + c];
  }
  return y;
}

Tensor ChannelsLast(const Tensor& x /*[1, c, (1,) h, w]*/) {
  const int64_t channels = x.dim(1), height = x.shape().end()[-2], width = x.shape().end()[-1];
  Tensor y({height, width, channels});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t p = 0; p < height * width; ++p) y[p * channels + c] = x[c * height * width + p];
  }
  return y;
}

// Shows a channels-last tensor to the tap in torch's order and takes back what the listener may have changed.
void TapPicture(const Tap& tap, std::string_view name, Tensor& x, Frames frames = Frames::kOne) {
  if (!tap.Wants(name)) return;
  Tensor seen = ChannelsFirst(x, frames);
  tap(name, seen);
  x = ChannelsLast(seen);
}

}  // namespace

// One pass through encoder or decoder: every method is a module's forward.
class VaePass {
 public:
  explicit VaePass(const Compute& compute) : compute_(compute) {}

  Tensor Conv(const Vae::Conv& w, const Tensor& x, int64_t stride, int64_t pad_before,
              int64_t pad_after) const {
    const Conv2dShape shape{.in_channels = w.in,
                            .out_channels = w.out,
                            .height = x.dim(0),
                            .width = x.dim(1),
                            .kernel = w.kernel,
                            .stride = stride,
                            .pad_before = pad_before,
                            .pad_after = pad_after};
    Tensor y({shape.out_height(), shape.out_width(), w.out});
    Conv2d(x.data(), shape, w.weight.data(), w.bias.data(), y.data(), compute_.pool);
    return y;
  }

  Tensor SameConv(const Vae::Conv& w, const Tensor& x) const {
    return Conv(w, x, 1, w.kernel / 2, w.kernel / 2);
  }

  Tensor Norm(const std::vector<float>& gamma, const Tensor& x) const {
    Tensor y(x.shape());
    ChannelNorm(x.data(), x.dim(0) * x.dim(1), x.dim(2), gamma.data(), y.data(), compute_.pool);
    return y;
  }

  void SiluInPlace(Tensor& x) const { Silu(x.data(), x.size(), x.data(), compute_.pool); }

  void Run(const Vae::ResidualBlock& w, Tensor& x, const Tap& tap) const {
    compute_.cancel.ThrowIfCancelled();
    const Tap inside = tap.Under(".");
    Tensor h;
    if (w.conv_shortcut) {
      h = SameConv(*w.conv_shortcut, x);
      TapPicture(inside, "conv_shortcut", h);
    }
    Tensor y = Norm(w.norm1, x);
    TapPicture(inside, "norm1", y);
    SiluInPlace(y);
    y = SameConv(w.conv1, y);
    TapPicture(inside, "conv1", y);

    y = Norm(w.norm2, y);
    TapPicture(inside, "norm2", y);
    SiluInPlace(y);
    y = SameConv(w.conv2, y);
    TapPicture(inside, "conv2", y);

    Add(y.data(), w.conv_shortcut ? h.data() : x.data(), y.size(), y.data(), compute_.pool);
    x = std::move(y);
    TapPicture(tap, "", x);
  }

  void Run(const Vae::AttentionBlock& w, Tensor& x, const Tap& tap) const {
    compute_.cancel.ThrowIfCancelled();
    const Tap inside = tap.Under(".");
    const int64_t height = x.dim(0), width = x.dim(1), channels = x.dim(2), pixels = height * width;
    Tensor y = Norm(w.norm, x);
    TapPicture(inside, "norm", y, Frames::kNone);
    Tensor qkv = SameConv(w.to_qkv, y);
    TapPicture(inside, "to_qkv", qkv, Frames::kNone);

    Attention(qkv.data(), qkv.data() + channels, qkv.data() + 2 * channels,
              {.queries = pixels,
               .keys = pixels,
               .heads = 1,
               .kv_heads = 1,
               .head_dim = channels,
               .q_stride = 3 * channels,
               .kv_stride = 3 * channels},
              y.data(), compute_.pool);

    y = SameConv(w.proj, y);
    TapPicture(inside, "proj", y, Frames::kNone);
    Add(x.data(), y.data(), y.size(), x.data(), compute_.pool);
    TapPicture(tap, "", x);
  }

  void Run(const Vae::Downsample& w, Tensor& x, const Tap& tap) const {
    x = Conv(w.conv, x, 2, 0, 1);
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
  }

  void Run(const Vae::Upsample& w, Tensor& x, const Tap& tap) const {
    Tensor large({2 * x.dim(0), 2 * x.dim(1), x.dim(2)});
    UpsampleNearest2x(x.data(), x.dim(0), x.dim(1), x.dim(2), large.data(), compute_.pool);
    x = SameConv(w.conv, large);
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
  }

  void Run(const Vae::MidBlock& w, Tensor& x, const Tap& tap) const {
    Run(w.resnet0, x, tap.Under(".resnets.0"));
    Run(w.attention, x, tap.Under(".attentions.0"));
    Run(w.resnet1, x, tap.Under(".resnets.1"));
    TapPicture(tap, "", x);
  }

  void Run(const Vae::UpBlock& w, Tensor& x, const Tap& tap) const {
    for (size_t i = 0; i < w.resnets.size(); ++i)
      Run(w.resnets[i], x, tap.Under(".resnets.", static_cast<int64_t>(i), ""));
    if (w.upsampler) Run(*w.upsampler, x, tap.Under(".upsamplers.0"));
    TapPicture(tap, "", x);
  }

  // norm_out, SiLU and conv_out: the end of both encoder and decoder.
  Tensor Head(const std::vector<float>& norm_out, const Vae::Conv& conv_out, const Tensor& x,
              const Tap& tap) const {
    Tensor y = Norm(norm_out, x);
    TapPicture(tap, "norm_out", y);
    SiluInPlace(y);
    y = SameConv(conv_out, y);
    TapPicture(tap, "conv_out", y);
    return y;
  }

  Tensor Encode(const Vae::Encoder& w, const Tensor& image, const Tap& tap) const {
    Tensor x = SameConv(w.conv_in, image);
    TapPicture(tap, "conv_in", x);
    for (size_t i = 0; i < w.down_blocks.size(); ++i) {
      compute_.Continue(i, w.down_blocks.size());
      const Tap block_tap = tap.Under("down_blocks.", static_cast<int64_t>(i), "");
      std::visit([&](const auto& block) { Run(block, x, block_tap); }, w.down_blocks[i]);
    }
    Run(w.mid_block, x, tap.Under("mid_block"));
    return Head(w.norm_out, w.conv_out, x, tap);
  }

  Tensor Decode(const Vae::Decoder& w, const Tensor& latents, const Tap& tap) const {
    Tensor x = SameConv(w.conv_in, latents);
    TapPicture(tap, "conv_in", x);
    Run(w.mid_block, x, tap.Under("mid_block"));
    for (size_t i = 0; i < w.up_blocks.size(); ++i) {
      compute_.Continue(i, w.up_blocks.size());
      Run(w.up_blocks[i], x, tap.Under("up_blocks.", static_cast<int64_t>(i), ""));
    }
    return Head(w.norm_out, w.conv_out, x, tap);
  }

 private:
  const Compute& compute_;
};

Tensor Vae::DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  const VaePass pass(compute);
  Tensor z = pass.SameConv(post_quant_conv_, ChannelsLast(latents));
  TapPicture(tap, "post_quant_conv", z);
  return ChannelsFirst(pass.Decode(decoder_, z, tap.Under("decoder.")), Frames::kNone);
}

Tensor Vae::EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const {
  const VaePass pass(compute);
  Tensor moments =
      pass.SameConv(quant_conv_, pass.Encode(encoder_, ChannelsLast(image), tap.Under("encoder.")));
  TapPicture(tap, "quant_conv", moments);
  return ChannelsFirst(moments, Frames::kOne);
}

Tensor Vae::Decode(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  Tensor image = DecodeTile(latents, compute, tap);
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
  return EncodeTile(image, compute, tap);
}

}  // namespace qwen_image

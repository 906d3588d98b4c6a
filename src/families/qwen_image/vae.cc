// The VAE's forward passes. Weights: vae_weights.cc. Tiling: vae_tiling.cc.
#include "families/qwen_image/vae.h"

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

// As many rows as `floats` allow, in whole blocks of tiles of the convolution.
int64_t BandRows(int64_t floats_per_row, int64_t floats) {
  constexpr int64_t kWholeBlocks = 24;
  return std::max<int64_t>(1, floats / floats_per_row / kWholeBlocks) * kWholeBlocks;
}

// One pass through encoder or decoder: every method is a module's forward. Steps are fused, and large
// pictures go through a residual block in bands; what a tap wants to see on the way becomes a whole tensor
// first, and the result has the same bits.
class VaePass {
 public:
  VaePass(const Compute& compute, int64_t band_floats) : compute_(compute), band_floats_(band_floats) {}

  // 1 × 1, or 3 × 3 with stride 2.
  Tensor Conv(const VaeWeights::Conv& w, const Tensor& x, int64_t stride = 1, int64_t pad_after = 0) const {
    const Conv2dShape shape{.in_channels = w.in,
                            .out_channels = w.out,
                            .height = x.dim(0),
                            .width = x.dim(1),
                            .kernel = w.kernel,
                            .stride = stride,
                            .pad_before = 0,
                            .pad_after = pad_after};
    Tensor y({shape.out_height(), shape.out_width(), w.out});
    Conv2d(x.data(), shape, w.weight.data(), w.bias.data(), y.data(), compute_.pool);
    return y;
  }

  Tensor SameConv(const VaeWeights::Conv3x3& w, const Tensor& x) {
    return RunConv(w, ShapeOf(w, x), {x.data()});
  }

  Tensor Norm(const std::vector<float>& gamma, const Tensor& x) const {
    Tensor y(x.shape());
    ChannelNorm(ViewOf(x), gamma.data(), ViewOf(y), compute_.pool);
    return y;
  }

  void Run(const VaeWeights::ResidualBlock& w, Tensor& x, const Tap& tap) {
    const Tap inside = tap.Under(".");
    if (w.conv_shortcut) {
      Tensor sum = Conv(*w.conv_shortcut, x);
      TapPicture(inside, "conv_shortcut", sum);
      AddResidual(w, x, sum, inside);
      x = std::move(sum);
    } else {
      AddResidual(w, x, x, inside);
    }
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::AttentionBlock& w, Tensor& x, const Tap& tap) const {
    compute_.cancel.ThrowIfCancelled();
    const Tap inside = tap.Under(".");
    const int64_t channels = x.dim(2);
    Tensor y = Norm(w.norm, x);
    TapPicture(inside, "norm", y, Frames::kNone);
    Tensor qkv = Conv(w.to_qkv, y);
    TapPicture(inside, "to_qkv", qkv, Frames::kNone);

    const ConstView all = ViewOf(qkv);
    Attention(all.Cols(0, channels), all.Cols(channels, channels), all.Cols(2 * channels, channels),
              {.heads = 1, .kv_heads = 1, .head_dim = channels}, ViewOf(y), compute_.pool);

    y = Conv(w.proj, y);
    TapPicture(inside, "proj", y, Frames::kNone);
    Add(ViewOf(x), ViewOf(y), ViewOf(x), compute_.pool);
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::Downsample& w, Tensor& x, const Tap& tap) const {
    x = Conv(w.conv, x, 2, 1);
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::Upsample& w, Tensor& x, const Tap& tap) {
    Conv3x3Shape shape = ShapeOf(w.conv, x);
    shape.upsample = true;
    x = RunConv(w.conv, shape, {x.data()});
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::MidBlock& w, Tensor& x, const Tap& tap) {
    Run(w.resnet0, x, tap.Under(".resnets.0"));
    Run(w.attention, x, tap.Under(".attentions.0"));
    Run(w.resnet1, x, tap.Under(".resnets.1"));
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::UpBlock& w, Tensor& x, const Tap& tap) {
    for (size_t i = 0; i < w.resnets.size(); ++i)
      Run(w.resnets[i], x, tap.Under(".resnets.", static_cast<int64_t>(i), ""));
    if (w.upsampler) Run(*w.upsampler, x, tap.Under(".upsamplers.0"));
    TapPicture(tap, "", x);
  }

  // norm_out, SiLU and conv_out: the end of both encoder and decoder.
  Tensor Head(const std::vector<float>& norm_out, const VaeWeights::Conv3x3& conv_out, const Tensor& x,
              const Tap& tap) {
    Tensor seen;
    Tensor y = RunConv(conv_out, ShapeOf(conv_out, x), Normed(norm_out, x, tap, "norm_out", seen));
    TapPicture(tap, "conv_out", y);
    return y;
  }

  Tensor Encode(const VaeWeights::Encoder& w, const Tensor& image, const Tap& tap) {
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

  Tensor Decode(const VaeWeights::Decoder& w, const Tensor& latents, const Tap& tap) {
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
  static Conv3x3Shape ShapeOf(const VaeWeights::Conv3x3& w, const Tensor& x) {
    return {.in_channels = w.in, .out_channels = w.out, .height = x.dim(0), .width = x.dim(1)};
  }

  Tensor RunConv(const VaeWeights::Conv3x3& w, const Conv3x3Shape& shape, const Conv3x3Input& input) {
    filter1_.Set(w.weight, w.in, shape.upsample, compute_.pool);
    Tensor y({shape.out_height(), shape.out_width(), w.out});
    Conv3x3(shape, filter1_, input, {.bias = w.bias.data(), .y = y.data(), .row_end = y.dim(0)},
            compute_.pool);
    return y;
  }

  // The input of a convolution of SiLU(norm(x)). The norm becomes a tensor, `seen`, only if a tap wants it.
  Conv3x3Input Normed(const std::vector<float>& gamma, const Tensor& x, const Tap& tap, std::string_view name,
                      Tensor& seen) const {
    if (!tap.Wants(name)) return {.x = x.data(), .norm_gamma = gamma.data()};
    seen = Norm(gamma, x);
    TapPicture(tap, name, seen);
    Silu(ViewOf(seen), ViewOf(seen), compute_.pool);
    return {.x = seen.data()};
  }

  // sum += conv2(SiLU(norm2(conv1(SiLU(norm1(x)))))). `sum` may be `x`: conv1 is a tile ahead of conv2, so it
  // has no more use for the rows that conv2 adds to.
  void AddResidual(const VaeWeights::ResidualBlock& w, const Tensor& x, Tensor& sum, const Tap& tap) {
    constexpr int64_t kTile = 4;  // rows that conv1 is ahead: conv2 needs one of them
    filter1_.Set(w.conv1.weight, w.conv1.in, false, compute_.pool);
    filter2_.Set(w.conv2.weight, w.conv2.in, false, compute_.pool);
    const bool seen = tap.Wants("norm1") || tap.Wants("conv1") || tap.Wants("norm2") || tap.Wants("conv2");
    const int64_t height = x.dim(0), width = x.dim(1), line = width * w.conv1.out;
    const int64_t band = seen ? height : BandRows(line, band_floats_);
    Tensor seen_norm1;
    const Conv3x3Input input1 = Normed(w.norm1, x, tap, "norm1", seen_norm1);
    Tensor hidden = TakeMemory({std::min(height, band + kTile + 1), width, w.conv1.out});
    int64_t first = 0, ready = 0;  // rows [first, ready) are in `hidden`
    for (int64_t done = 0, next = 0; done < height; done = next) {
      compute_.cancel.ThrowIfCancelled();
      next = std::min(height, done + band);
      const int64_t ahead = std::min(height, next + kTile);
      Conv3x3(ShapeOf(w.conv1, x), filter1_, input1,
              {w.conv1.bias.data(), nullptr, hidden.data(), first, ready, ahead}, compute_.pool);
      TapPicture(tap, "conv1", hidden);

      Tensor seen_norm2;
      Conv3x3Input input2 = Normed(w.norm2, hidden, tap, "norm2", seen_norm2);
      input2.first_row = first;
      Tensor seen_conv2 = tap.Wants("conv2") ? Tensor(sum.shape()) : Tensor();
      const bool apart = seen_conv2.size() > 0;
      Conv3x3({w.conv2.in, w.conv2.out, height, width}, filter2_, input2,
              {w.conv2.bias.data(), apart ? nullptr : sum.data(), apart ? seen_conv2.data() : sum.data(), 0,
               done, next},
              compute_.pool);
      TapPicture(tap, "conv2", seen_conv2);
      if (apart) Add(ViewOf(seen_conv2), ViewOf(sum), ViewOf(sum), compute_.pool);

      std::copy(hidden.row(0) + (next - 1 - first) * line, hidden.row(0) + (ahead - first) * line,
                hidden.row(0));
      first = next - 1;
      ready = ahead;
    }
    memory_ = std::move(hidden);
  }

  // What the block before left behind, if it fits: fresh memory costs the system time to clear.
  Tensor TakeMemory(const Shape& shape) {
    Tensor taken = std::move(memory_);
    memory_ = Tensor();
    if (taken.size() != ElementCount(shape)) {
      taken = Tensor();
      taken = Tensor(shape);
    }
    taken.Reshape(shape);
    return taken;
  }

  const Compute& compute_;
  const int64_t band_floats_;
  Conv3x3Filter filter1_, filter2_;
  Tensor memory_;
};

}  // namespace

Vae::Vae(WeightStore store)
    : config_(ReadVaeConfig(store)), store_(std::move(store)), weights_(config_, store_) {}

void Vae::ReleasePages() const {
  if (twin_) twin_->Release();
  store_.ReleasePages();
}

Tensor Vae::DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  if (twin_) return twin_->Decode(latents, compute, tap);
  VaePass pass(compute, band_floats_);
  Tensor z = pass.Conv(weights_.post_quant_conv, ChannelsLast(latents));
  TapPicture(tap, "post_quant_conv", z);
  return ChannelsFirst(pass.Decode(weights_.decoder, z, tap.Under("decoder.")), Frames::kNone);
}

Tensor Vae::EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const {
  if (twin_) return twin_->Encode(image, compute, tap);
  VaePass pass(compute, band_floats_);
  Tensor moments = pass.Conv(weights_.quant_conv,
                             pass.Encode(weights_.encoder, ChannelsLast(image), tap.Under("encoder.")));
  TapPicture(tap, "quant_conv", moments);
  return ChannelsFirst(moments, Frames::kOne);
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

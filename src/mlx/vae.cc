#include "mlx/vae.h"

namespace qwen_image::on_mlx {
namespace {

enum class Frames { kNone, kOne };  // whether the reference's tensor has a frame axis at this point

// [1, c, (1,) h, w] → [1, h, w, c]
array ChannelsLast(const array& x) {
  const mx::Shape plane = {1, x.shape(1), x.shape(-2), x.shape(-1)};
  return mx::transpose(mx::reshape(x, plane), {0, 2, 3, 1});
}

array ChannelsFirst(const array& x /*[1, h, w, c]*/, Frames frames) {
  const array plane = mx::transpose(x, {0, 3, 1, 2});
  return frames == Frames::kOne ? mx::expand_dims(plane, 2) : plane;
}

// Shows a channels-last array to the tap in torch's order and takes back what the listener may have changed.
void TapPicture(const Tap& tap, std::string_view name, array& x, Frames frames = Frames::kOne) {
  if (!tap.Wants(name)) return;
  array seen = ChannelsFirst(x, frames);
  TapArray(tap, name, seen);
  x = ChannelsLast(seen);
}

// The last temporal slice of a kernel [out, in · slices · 3 · 3] as [out, 3, 3, in].
array FilterOf(const VaeWeights::Conv3x3& w) {
  const int64_t slices = w.weight.cols / (9 * w.in);
  Tensor all({w.out, w.in, slices, 3, 3});
  for (int64_t o = 0; o < w.out; ++o)
    DecodeRow(w.weight, o, 0, w.weight.cols, all.data() + o * w.weight.cols);
  const int in = static_cast<int>(w.in), out = static_cast<int>(w.out), last = static_cast<int>(slices) - 1;
  const array slice = mx::slice(ToDevice(all), {0, 0, last, 0, 0}, {out, in, last + 1, 3, 3});
  return mx::transpose(mx::squeeze(slice, 2), {0, 2, 3, 1});
}

// One pass through encoder or decoder: every method is a module's forward. Weights are copied as they are
// used: a convolution takes far longer than that, and the whole VAE is never on the device twice.
class VaePass {
 public:
  explicit VaePass(const Compute& compute) : compute_(compute) {}

  // 1 × 1, or 3 × 3 with stride 2.
  array Conv(const VaeWeights::Conv& w, const array& x, int stride = 1) const {
    const array weight = ToDevice(w.weight.data(), {w.out, w.kernel, w.kernel, w.in});
    return mx::conv2d(x, weight, {stride, stride}) + ToDevice(w.bias);
  }

  array SameConv(const VaeWeights::Conv3x3& w, const array& x) const {
    return mx::conv2d(x, FilterOf(w), {1, 1}, {1, 1}) + ToDevice(w.bias);
  }

  // x / max(|x|, 1e-12) · √channels · gamma: the mean square of a pixel of that length is the epsilon.
  array Norm(const std::vector<float>& gamma, const array& x) const {
    return mx::fast::rms_norm(x, ToDevice(gamma), 1e-24f / static_cast<float>(gamma.size()));
  }

  void Run(const VaeWeights::ResidualBlock& w, array& x, const Tap& tap) const {
    const Tap inside = tap.Under(".");
    array sum = x;
    if (w.conv_shortcut) {
      sum = Conv(*w.conv_shortcut, x);
      TapPicture(inside, "conv_shortcut", sum);
    }
    array hidden = Norm(w.norm1, x);
    TapPicture(inside, "norm1", hidden);
    hidden = SameConv(w.conv1, Silu(hidden));
    TapPicture(inside, "conv1", hidden);
    hidden = Norm(w.norm2, hidden);
    TapPicture(inside, "norm2", hidden);
    hidden = SameConv(w.conv2, Silu(hidden));
    TapPicture(inside, "conv2", hidden);
    x = hidden + sum;
    TapPicture(tap, "", x);
    Evaluate(x);
  }

  void Run(const VaeWeights::AttentionBlock& w, array& x, const Tap& tap) const {
    const Tap inside = tap.Under(".");
    const int pixels = x.shape(1) * x.shape(2), channels = x.shape(3);
    array y = Norm(w.norm, x);
    TapPicture(inside, "norm", y, Frames::kNone);
    array qkv = Conv(w.to_qkv, y);
    TapPicture(inside, "to_qkv", qkv, Frames::kNone);
    const std::vector<array> parts = mx::split(mx::reshape(qkv, {1, pixels, 1, 3 * channels}), 3, -1);
    y = Conv(w.proj, mx::reshape(Attention(parts[0], parts[1], parts[2]), x.shape()));
    TapPicture(inside, "proj", y, Frames::kNone);
    x = x + y;
    TapPicture(tap, "", x);
    Evaluate(x);
  }

  void Run(const VaeWeights::Downsample& w, array& x, const Tap& tap) const {
    // one row below and one column to the right
    x = Conv(w.conv, mx::pad(x, {{0, 0}, {0, 1}, {0, 1}, {0, 0}}), 2);
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
    Evaluate(x);
  }

  void Run(const VaeWeights::Upsample& w, array& x, const Tap& tap) const {
    x = SameConv(w.conv, mx::repeat(mx::repeat(x, 2, 1), 2, 2));
    TapPicture(tap, ".resample.1", x, Frames::kNone);
    TapPicture(tap, "", x);
    Evaluate(x);
  }

  void Run(const VaeWeights::MidBlock& w, array& x, const Tap& tap) const {
    Run(w.resnet0, x, tap.Under(".resnets.0"));
    Run(w.attention, x, tap.Under(".attentions.0"));
    Run(w.resnet1, x, tap.Under(".resnets.1"));
    TapPicture(tap, "", x);
  }

  void Run(const VaeWeights::UpBlock& w, array& x, const Tap& tap) const {
    for (size_t i = 0; i < w.resnets.size(); ++i)
      Run(w.resnets[i], x, tap.Under(".resnets.", static_cast<int64_t>(i), ""));
    if (w.upsampler) Run(*w.upsampler, x, tap.Under(".upsamplers.0"));
    TapPicture(tap, "", x);
  }

  // norm_out, SiLU and conv_out: the end of both encoder and decoder.
  array Head(const std::vector<float>& norm_out, const VaeWeights::Conv3x3& conv_out, const array& x,
             const Tap& tap) const {
    array y = Norm(norm_out, x);
    TapPicture(tap, "norm_out", y);
    y = SameConv(conv_out, Silu(y));
    TapPicture(tap, "conv_out", y);
    return y;
  }

  array Encode(const VaeWeights::Encoder& w, const array& image, const Tap& tap) const {
    array x = SameConv(w.conv_in, image);
    TapPicture(tap, "conv_in", x);
    for (size_t i = 0; i < w.down_blocks.size(); ++i) {
      compute_.Continue(i, w.down_blocks.size());
      const Tap block_tap = tap.Under("down_blocks.", static_cast<int64_t>(i), "");
      std::visit([&](const auto& block) { Run(block, x, block_tap); }, w.down_blocks[i]);
    }
    Run(w.mid_block, x, tap.Under("mid_block"));
    return Head(w.norm_out, w.conv_out, x, tap);
  }

  array Decode(const VaeWeights::Decoder& w, const array& latents, const Tap& tap) const {
    array x = SameConv(w.conv_in, latents);
    TapPicture(tap, "conv_in", x);
    Run(w.mid_block, x, tap.Under("mid_block"));
    for (size_t i = 0; i < w.up_blocks.size(); ++i) {
      compute_.Continue(i, w.up_blocks.size());
      Run(w.up_blocks[i], x, tap.Under("up_blocks.", static_cast<int64_t>(i), ""));
    }
    return Head(w.norm_out, w.conv_out, x, tap);
  }

 private:
  // At the end of a block: memory stays bounded, and a request to stop is heard.
  void Evaluate(array& x) const {
    x.eval();
    compute_.cancel.ThrowIfCancelled();
  }

  const Compute& compute_;
};

}  // namespace

Vae::Vae(const qwen_image::Vae& host, const mx::Device& device) : host_(host), device_(device) {}

Vae::~Vae() = default;

void Vae::Release() const { mx::clear_cache(); }

Tensor Vae::Decode(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  return RunOn(device_, [&] {
    const VaePass pass(compute);
    array z = pass.Conv(host_.weights().post_quant_conv, ChannelsLast(ToDevice(latents)));
    TapPicture(tap, "post_quant_conv", z);
    return ToHost(
        ChannelsFirst(pass.Decode(host_.weights().decoder, z, tap.Under("decoder.")), Frames::kNone));
  });
}

Tensor Vae::Encode(const Tensor& image, const Compute& compute, const Tap& tap) const {
  return RunOn(device_, [&] {
    const VaePass pass(compute);
    const array encoded =
        pass.Encode(host_.weights().encoder, ChannelsLast(ToDevice(image)), tap.Under("encoder."));
    array moments = pass.Conv(host_.weights().quant_conv, encoded);
    TapPicture(tap, "quant_conv", moments);
    return ToHost(ChannelsFirst(moments, Frames::kOne));
  });
}

}  // namespace qwen_image::on_mlx

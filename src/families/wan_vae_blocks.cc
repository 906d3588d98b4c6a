#include "families/wan_vae_blocks.h"

#include <algorithm>
#include <array>
#include <utility>

namespace qwen_image {

Conv VaeBlockBinder::CausalConv(const std::string& name, int64_t out, int64_t in, int64_t kernel) {
  return BindConv(binder_, name, CausalShape(name, out, in, kernel));
}

Conv3x3Layer VaeBlockBinder::CausalConv3x3(const std::string& name, int64_t out, int64_t in) {
  return BindConv3x3(binder_, store_, name, CausalShape(name, out, in, 3));
}

Conv VaeBlockBinder::PlaneConv(const std::string& name, int64_t out, int64_t in, int64_t kernel) {
  return BindConv(binder_, name, {out, in, kernel, kernel});
}

Conv3x3Layer VaeBlockBinder::PlaneConv3x3(const std::string& name, int64_t out, int64_t in) {
  return BindConv3x3(binder_, store_, name, {out, in, 3, 3});
}

std::vector<float> VaeBlockBinder::Gamma(const std::string& name, int64_t channels) {
  return binder_.Floats(name + ".gamma", {channels, 1, 1, 1});
}

VaeResidualBlock VaeBlockBinder::ResidualBlock(const std::string& name, int64_t in, int64_t out) {
  VaeResidualBlock block{.branch = {.norm1 = Gamma(name + ".norm1", in),
                                    .norm2 = Gamma(name + ".norm2", out),
                                    .conv1 = CausalConv3x3(name + ".conv1", out, in),
                                    .conv2 = CausalConv3x3(name + ".conv2", out, out)},
                         .conv_shortcut = {}};
  if (in != out) block.conv_shortcut = CausalConv(name + ".conv_shortcut", out, in, 1);
  return block;
}

VaeAttentionBlock VaeBlockBinder::AttentionBlock(const std::string& name, int64_t channels) {
  return {.norm = binder_.Floats(name + ".norm.gamma", {channels, 1, 1}),
          .to_qkv = PlaneConv(name + ".to_qkv", 3 * channels, channels, 1),
          .proj = PlaneConv(name + ".proj", channels, channels, 1)};
}

VaeMidBlock VaeBlockBinder::MidBlock(const std::string& name, int64_t channels) {
  return {.resnet0 = ResidualBlock(name + ".resnets.0", channels, channels),
          .attention = AttentionBlock(name + ".attentions.0", channels),
          .resnet1 = ResidualBlock(name + ".resnets.1", channels, channels)};
}

void VaeBlockBinder::Finish() {
  binder_.AllowUnused("*.time_conv.*");  // runs only for videos
  binder_.Finish();
}

void VaeBlockPass::Run(const VaeResidualBlock& w, Array& x, const Tap& tap) {
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

void VaeBlockPass::Run(const VaeAttentionBlock& w, Array& x, const Tap& tap) {
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
  ops_.Attend({.q = &q, .k = &k, .v = &v, .heads = 1, .kv_heads = 1, .head_dim = channels}, attended, inside);

  y = ops_.Convolve(w.proj, ops_.Reshaped(attended[0], x.shape), 1, 0);
  Show(inside, "proj", y, Frames::kNone);
  ops_.Add(y, x);
  End(x, tap);
}

void VaeBlockPass::Run(const VaeMidBlock& w, Array& x, const Tap& tap) {
  Run(w.resnet0, x, tap.Under(".resnets.0"));
  Run(w.attention, x, tap.Under(".attentions.0"));
  Run(w.resnet1, x, tap.Under(".resnets.1"));
  Show(tap, "", x);
}

void VaeBlockPass::Run(const std::vector<VaeResidualBlock>& resnets, Array& x, const Tap& tap) {
  for (size_t i = 0; i < resnets.size(); ++i)
    Run(resnets[i], x, tap.Under(".resnets.", static_cast<int64_t>(i), ""));
}

void VaeBlockPass::Downsample(const Conv& conv, Array& x, const Tap& tap) {
  x = ops_.Convolve(conv, x, 2, 1);
  Show(tap, ".resample.1", x, Frames::kNone);
  End(x, tap);
}

void VaeBlockPass::Upsample(const Conv3x3Layer& conv, Array& x, const Tap& tap) {
  x = ops_.Convolve(conv, x, true);
  Show(tap, ".resample.1", x, Frames::kNone);
  End(x, tap);
}

Array VaeBlockPass::Head(const std::vector<float>& norm_out, const Conv3x3Layer& conv_out, const Array& x,
                         const Tap& tap) {
  Array y = ops_.NormSiluConvolve(norm_out, "norm_out", conv_out, x, tap);
  Show(tap, "conv_out", y);
  return y;
}

void VaeBlockPass::Show(const Tap& tap, std::string_view name, Array& x, Frames frames) {
  ops_.ShowPicture(tap, name, x, frames);
}

void VaeBlockPass::End(Array& x, const Tap& tap) {
  Show(tap, "", x);
  ops_.Finish(std::array{&x});
  compute_.cancel.ThrowIfCancelled();
}

}  // namespace qwen_image

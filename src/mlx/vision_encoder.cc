#include "mlx/vision_encoder.h"

namespace qwen_image::on_mlx {
namespace {

// Rows of x [tokens · unit, width] in the order of whole tokens: row group i is the one at order[i].
array Gather(const array& x, const std::vector<int64_t>& order, int64_t unit) {
  const std::vector<int32_t> indices(order.begin(), order.end());
  const int tokens = static_cast<int>(order.size());
  const array by_token = mx::reshape(x, {tokens, static_cast<int>(unit) * x.shape(1)});
  return mx::reshape(mx::take(by_token, array(indices.data(), {tokens}, mx::int32), 0), x.shape());
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

}  // namespace

// See VisionEncoderWeights.
struct VisionEncoder::Block {
  Block(const VisionEncoderWeights::Block& w, const Placement& placement)
      : norm1(ToDevice(w.norm1)),
        proj(w.attn.proj, placement),
        norm2(ToDevice(w.norm2)),
        gate_proj(w.mlp.gate_proj, placement),
        up_proj(w.mlp.up_proj, placement),
        down_proj(w.mlp.down_proj, placement),
        full_attention(w.full_attention) {
    for (const qwen_image::Linear& part : w.attn.qkv) qkv.emplace_back(part, placement);
  }

  array norm1;
  std::vector<Linear> qkv;  // one; or three, where a file splits it
  Linear proj;
  array norm2;
  Linear gate_proj, up_proj, down_proj;
  bool full_attention;
};

struct VisionEncoder::Merger {
  Merger(const VisionEncoderWeights::Merger& w, const Placement& placement)
      : ln_q(ToDevice(w.ln_q)), mlp_0(w.mlp_0, placement), mlp_2(w.mlp_2, placement) {}

  array ln_q;
  Linear mlp_0, mlp_2;
};

VisionEncoder::VisionEncoder(const qwen_image::VisionEncoder& host, const Placement& placement)
    : host_(host), config_(host.config()), placement_(placement) {}

VisionEncoder::~VisionEncoder() = default;

void VisionEncoder::Release() const {
  if (placement_.keep_weights) return;
  blocks_.Clear();
  merger_.reset();
  mx::clear_cache();
}

array VisionEncoder::RunAttention(const Block& w, const array& x, const Layout& layout,
                                  const Tap& tap) const {
  const int patches = x.shape(0), heads = static_cast<int>(config_.num_heads);
  std::vector<array> parts;
  for (const Linear& part : w.qkv) parts.push_back(part(x));
  array qkv = parts.size() == 1 ? parts[0] : mx::concatenate(parts, 1);
  TapArray(tap, "qkv", qkv);

  parts = mx::split(mx::reshape(qkv, {1, patches, 3 * heads, static_cast<int>(config_.head_dim())}), 3, 2);
  const array q = RopeHalves(parts[0], layout.cos, layout.sin);
  const array k = RopeHalves(parts[1], layout.cos, layout.sin);
  mx::Shape ends;
  for (const int64_t end : w.full_attention ? layout.frame_ends : layout.window_ends)
    if (end < patches) ends.push_back(static_cast<int>(end));
  const std::vector<array> qs = mx::split(q, ends, 1), ks = mx::split(k, ends, 1),
                           vs = mx::split(parts[2], ends, 1);
  std::vector<array> attended;
  for (size_t i = 0; i < qs.size(); ++i) attended.push_back(Attention(qs[i], ks[i], vs[i]));
  array out = w.proj(mx::squeeze(mx::concatenate(attended, 1), 0));
  TapArray(tap, "proj", out);
  return out;
}

array VisionEncoder::RunMlp(const Block& w, const array& x, const Tap& tap) const {
  array gate = w.gate_proj(x);
  TapArray(tap, "gate_proj", gate);
  array up = w.up_proj(x);
  TapArray(tap, "up_proj", up);
  array out = w.down_proj(Silu(gate) * up);
  TapArray(tap, "down_proj", out);
  return out;
}

void VisionEncoder::RunBlock(const Block& w, array& hidden_states, const Layout& layout,
                             const Tap& tap) const {
  array normed = mx::fast::rms_norm(hidden_states, w.norm1, kVisionEncoderEps);
  TapArray(tap, "norm1", normed);
  array out = RunAttention(w, mx::astype(normed, placement_.activations), layout, tap.Under("attn."));
  TapArray(tap, "attn", out);
  hidden_states = hidden_states + mx::astype(out, mx::float32);

  normed = mx::fast::rms_norm(hidden_states, w.norm2, kVisionEncoderEps);
  TapArray(tap, "norm2", normed);
  out = RunMlp(w, mx::astype(normed, placement_.activations), tap.Under("mlp."));
  TapArray(tap, "mlp", out);
  hidden_states = hidden_states + mx::astype(out, mx::float32);
}

array VisionEncoder::RunMerger(const array& hidden_states, const Tap& tap) const {
  if (!merger_) merger_ = std::make_unique<Merger>(host_.weights().merger, placement_);
  const int unit = static_cast<int>(config_.merge_unit());
  array normed = mx::fast::rms_norm(hidden_states, merger_->ln_q, kVisionEncoderEps);
  TapArray(tap, "ln_q", normed);
  const array tokens = mx::reshape(mx::astype(normed, placement_.activations),
                                   {normed.shape(0) / unit, normed.shape(1) * unit});
  array hidden = merger_->mlp_0(tokens);
  TapArray(tap, "mlp.0", hidden);
  array merged = merger_->mlp_2(Gelu(hidden));
  TapArray(tap, "mlp.2", merged);
  return merged;
}

Tensor VisionEncoder::Encode(const Tensor& pixel_values, const qwen_image::VisionEncoder::Layout& host_layout,
                             const Compute& compute, const Tap& tap) const {
  return RunOn(placement_.device, [&] {
    const Tap visual = tap.Under("model.visual.");
    const Layout layout{host_layout.window_ends, host_layout.frame_ends, ToDevice(host_layout.cos),
                        ToDevice(host_layout.sin)};
    const array proj =
        ToDevice(host_.weights().patch_embed_proj.data(), {config_.hidden_size, config_.patch_values()});
    array patches = mx::matmul(ToDevice(pixel_values), mx::transpose(proj));
    TapArray(visual, "patch_embed", patches);
    array hidden_states = Gather(patches, host_layout.order, config_.merge_unit());

    const size_t blocks = host_.weights().blocks.size();
    for (size_t i = 0; i < blocks; ++i) {
      compute.Continue(i, blocks);
      const auto index = static_cast<int64_t>(i);
      const Block& block = blocks_.Load(host_.weights().blocks, i, placement_);
      RunBlock(block, hidden_states, layout, visual.Under("blocks.", index, "."));
      TapArray(visual.Under("blocks.", index, ""), "", hidden_states);
      hidden_states.eval();
    }
    array merged = RunMerger(hidden_states, visual.Under("merger."));
    TapArray(visual, "merger", merged);
    array embeds = Gather(merged, Inverse(host_layout.order), 1);
    TapArray(tap, "model.visual", embeds);
    return ToHost(embeds);
  });
}

}  // namespace qwen_image::on_mlx

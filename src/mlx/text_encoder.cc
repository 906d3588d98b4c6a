#include "mlx/text_encoder.h"

namespace qwen_image::on_mlx {

// See TextEncoderWeights.
struct TextEncoder::Layer {
  Layer(const TextEncoderWeights::Layer& w, const Placement& placement)
      : input_layernorm(ToDevice(w.input_layernorm)),
        q_proj(w.self_attn.q_proj, placement),
        k_proj(w.self_attn.k_proj, placement),
        v_proj(w.self_attn.v_proj, placement),
        o_proj(w.self_attn.o_proj, placement),
        post_attention_layernorm(ToDevice(w.post_attention_layernorm)),
        gate_proj(w.mlp.gate_proj, placement),
        up_proj(w.mlp.up_proj, placement),
        down_proj(w.mlp.down_proj, placement) {}

  array input_layernorm;
  Linear q_proj, k_proj, v_proj, o_proj;
  array post_attention_layernorm;
  Linear gate_proj, up_proj, down_proj;
};

TextEncoder::TextEncoder(const qwen_image::TextEncoder& host, const Placement& placement)
    : host_(host), config_(host.config()), placement_(placement) {}

TextEncoder::~TextEncoder() = default;

void TextEncoder::Release() const {
  if (placement_.keep_weights) return;
  layers_.Clear();
  mx::clear_cache();
}

array TextEncoder::RunSelfAttention(const Layer& w, const array& x, const Rope& rope, const Tap& tap) const {
  const auto split = [&](const array& y, int64_t heads) {
    return mx::reshape(y, {1, y.shape(1), static_cast<int>(heads), static_cast<int>(config_.head_dim())});
  };
  array q = w.q_proj(x);
  TapArray(tap, "q_proj", q);
  array k = w.k_proj(x);
  TapArray(tap, "k_proj", k);
  array v = w.v_proj(x);
  TapArray(tap, "v_proj", v);

  const int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const array attended =
      Attention(RopeHalves(split(q, heads), rope.cos, rope.sin),
                RopeHalves(split(k, kv_heads), rope.cos, rope.sin), split(v, kv_heads), Mask::kCausal);
  array out = w.o_proj(attended);
  TapArray(tap, "o_proj", out);
  return out;
}

array TextEncoder::RunMlp(const Layer& w, const array& x, const Tap& tap) const {
  array gate = w.gate_proj(x);
  TapArray(tap, "gate_proj", gate);
  array up = w.up_proj(x);
  TapArray(tap, "up_proj", up);
  array out = w.down_proj(Silu(gate) * up);
  TapArray(tap, "down_proj", out);
  return out;
}

void TextEncoder::RunLayer(const Layer& w, array& hidden_states, const Rope& rope, const Tap& tap) const {
  const float eps = static_cast<float>(config_.rms_norm_eps);
  array normed = mx::fast::rms_norm(hidden_states, w.input_layernorm, eps);
  TapArray(tap, "input_layernorm", normed);
  array out = RunSelfAttention(w, mx::astype(normed, placement_.activations), rope, tap.Under("self_attn."));
  TapArray(tap, "self_attn", out);
  hidden_states = hidden_states + mx::astype(out, mx::float32);

  normed = mx::fast::rms_norm(hidden_states, w.post_attention_layernorm, eps);
  TapArray(tap, "post_attention_layernorm", normed);
  out = RunMlp(w, mx::astype(normed, placement_.activations), tap.Under("mlp."));
  TapArray(tap, "mlp", out);
  hidden_states = hidden_states + mx::astype(out, mx::float32);
}

Tensor TextEncoder::RunLayers(const Tensor& inputs_embeds, const qwen_image::TextEncoder::Rope& host_rope,
                              const Compute& compute, const Tap& tap) const {
  return RunOn(placement_.device, [&] {
    const Rope rope{ToDevice(host_rope.cos), ToDevice(host_rope.sin)};
    const size_t layers = host_.weights().layers.size();
    array hidden_states = ToDevice(inputs_embeds);
    for (size_t i = 0; i < layers; ++i) {
      compute.Continue(i, layers);
      const auto index = static_cast<int64_t>(i);
      const Layer& layer = layers_.Load(host_.weights().layers, i, placement_);
      RunLayer(layer, hidden_states, rope, tap.Under("layers.", index, "."));
      TapArray(tap.Under("layers.", index, ""), "", hidden_states);
      hidden_states.eval();
    }
    array normed = mx::fast::rms_norm(hidden_states, ToDevice(host_.weights().norm),
                                      static_cast<float>(config_.rms_norm_eps));
    TapArray(tap, "norm", normed);
    return ToHost(normed);
  });
}

}  // namespace qwen_image::on_mlx

#include "families/qwen_image/text_encoder.h"

#include <cstddef>

#include "core/fail.h"

namespace qwen_image {

TextEncoderWeights::TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store,
                                       Precision precision) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_width = config.num_attention_heads * config.head_dim();
  const int64_t kv_width = config.num_key_value_heads * config.head_dim();
  const int64_t intermediate = config.intermediate_size;

  WeightBinder binder(store);
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, Bias bias = Bias::kYes) {
    return BindLinear(binder, name, out, in, bias, precision);
  };
  embed_tokens = binder.Matrix("model.language_model.embed_tokens.weight", {config.vocab_size, hidden});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.language_model.layers.{}.", i);
    layers.push_back({
        .input_layernorm = binder.Floats(layer + "input_layernorm.weight", {hidden}),
        .self_attn = {.q_proj = linear(layer + "self_attn.q_proj", q_width, hidden),
                      .k_proj = linear(layer + "self_attn.k_proj", kv_width, hidden),
                      .v_proj = linear(layer + "self_attn.v_proj", kv_width, hidden),
                      .o_proj = linear(layer + "self_attn.o_proj", hidden, q_width, Bias::kNo)},
        .post_attention_layernorm = binder.Floats(layer + "post_attention_layernorm.weight", {hidden}),
        .mlp = {.gate_proj = linear(layer + "mlp.gate_proj", intermediate, hidden, Bias::kNo),
                .up_proj = linear(layer + "mlp.up_proj", intermediate, hidden, Bias::kNo),
                .down_proj = linear(layer + "mlp.down_proj", hidden, intermediate, Bias::kNo)},
    });
  }
  norm = binder.Floats("model.language_model.norm.weight", {hidden});
  binder.AllowUnused("model.visual.*");
  binder.AllowUnused("lm_head.*");
  binder.Finish();
}

TextEncoder::TextEncoder(WeightStore store, Precision precision)
    : config_(ReadTextEncoderConfig(store)), store_(std::move(store)), weights_(config_, store_, precision) {}

void TextEncoder::ReleasePages() const {
  if (twin_) twin_->Release();
  store_.ReleasePages();
}

Tensor TextEncoder::EmbedTokens(const std::vector<int64_t>& input_ids) const {
  const int64_t hidden = config_.hidden_size;
  Tensor x({1, static_cast<int64_t>(input_ids.size()), hidden});
  for (size_t t = 0; t < input_ids.size(); ++t) {
    const int64_t id = input_ids[t];
    if (id < 0 || id >= config_.vocab_size) {
      Fail(ErrorKind::kBadInput,
           "{}: the tokenizer gave token {}, but the text encoder knows only {} tokens; tokenizer and "
           "text encoder do not belong together",
           store_.path().string(), id, config_.vocab_size);
    }
    DecodeRow(weights_.embed_tokens, id, 0, hidden, x.row(static_cast<int64_t>(t)));
  }
  return x;
}

void TextEncoder::RunSelfAttention(const SelfAttention& w, const Tensor& x, const Rope& rope, Tensor& out,
                                   ThreadPool& pool, const Tap& tap) const {
  const int64_t tokens = x.dim(1);
  const int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const int64_t head_dim = config_.head_dim();
  Tensor q({1, tokens, heads * head_dim}), k({1, tokens, kv_heads * head_dim}),
      v({1, tokens, kv_heads * head_dim});

  w.q_proj(x.data(), tokens, q.data(), pool);
  tap("q_proj", q);
  w.k_proj(x.data(), tokens, k.data(), pool);
  tap("k_proj", k);
  w.v_proj(x.data(), tokens, v.data(), pool);
  tap("v_proj", v);

  const RopeAngles angles = {rope.cos.data(), rope.sin.data(), head_dim};
  RopeHalves(ViewOf(q), angles, pool);
  RopeHalves(ViewOf(k), angles, pool);

  Tensor attended({1, tokens, heads * head_dim});
  Attention(ViewOf(q), ViewOf(k), ViewOf(v),
            {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .causal = true}, ViewOf(attended),
            pool);

  w.o_proj(attended.data(), tokens, out.data(), pool);
  tap("o_proj", out);
}

void TextEncoder::RunMlp(const Mlp& w, const Tensor& x, Tensor& out, ThreadPool& pool, const Tap& tap) const {
  const int64_t tokens = x.dim(1);
  Tensor gate({1, tokens, config_.intermediate_size}), up({1, tokens, config_.intermediate_size});
  w.gate_proj(x.data(), tokens, gate.data(), pool);
  tap("gate_proj", gate);
  w.up_proj(x.data(), tokens, up.data(), pool);
  tap("up_proj", up);
  SiluMul(ViewOf(gate), ViewOf(up), ViewOf(gate), pool);
  w.down_proj(gate.data(), tokens, out.data(), pool);
  tap("down_proj", out);
}

void TextEncoder::RunLayer(const Layer& w, Tensor& hidden_states, const Rope& rope, ThreadPool& pool,
                           const Tap& tap) const {
  const float eps = static_cast<float>(config_.rms_norm_eps);
  Tensor normed(hidden_states.shape()), out(hidden_states.shape());

  RmsNorm(ViewOf(hidden_states), w.input_layernorm.data(), eps, ViewOf(normed), pool);
  tap("input_layernorm", normed);
  RunSelfAttention(w.self_attn, normed, rope, out, pool, tap.Under("self_attn."));
  tap("self_attn", out);
  Add(ViewOf(hidden_states), ViewOf(out), ViewOf(hidden_states), pool);

  RmsNorm(ViewOf(hidden_states), w.post_attention_layernorm.data(), eps, ViewOf(normed), pool);
  tap("post_attention_layernorm", normed);
  RunMlp(w.mlp, normed, out, pool, tap.Under("mlp."));
  tap("mlp", out);
  Add(ViewOf(hidden_states), ViewOf(out), ViewOf(hidden_states), pool);
}

Tensor TextEncoder::RunLayers(Tensor hidden_states, const Rope& rope, const Compute& compute,
                              const Tap& tap) const {
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    compute.Continue(i, weights_.layers.size());
    const auto index = static_cast<int64_t>(i);
    RunLayer(weights_.layers[i], hidden_states, rope, compute.pool, tap.Under("layers.", index, "."));
    tap.Under("layers.", index, "")("", hidden_states);
  }
  RmsNorm(ViewOf(hidden_states), weights_.norm.data(), static_cast<float>(config_.rms_norm_eps),
          ViewOf(hidden_states), compute.pool);
  tap("norm", hidden_states);
  return hidden_states;
}

Tensor TextEncoder::Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                           const Compute& compute, const Tap& tap) const {
  const Tap model = tap.Under("model.language_model.");
  const Rope rope = MakeRope(GetRopeIndex(input_ids, images));
  Tensor inputs_embeds = EmbedTokens(input_ids);
  model("embed_tokens", inputs_embeds);
  if (images) SpliceImages(input_ids, *images, inputs_embeds);
  return twin_ ? twin_->RunLayers(inputs_embeds, rope, compute, model)
               : RunLayers(std::move(inputs_embeds), rope, compute, model);
}

}  // namespace qwen_image

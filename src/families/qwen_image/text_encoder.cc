#include "families/qwen_image/text_encoder.h"

#include <array>
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

std::vector<const Linear*> TextEncoderWeights::AllLayers() const {
  std::vector<const Linear*> all;
  for (const Layer& w : layers)
    all.insert(all.end(), {&w.self_attn.q_proj, &w.self_attn.k_proj, &w.self_attn.v_proj, &w.self_attn.o_proj,
                           &w.mlp.gate_proj, &w.mlp.up_proj, &w.mlp.down_proj});
  return all;
}

namespace {

// One prompt's way through the layers.
class TextEncoderPass {
 public:
  TextEncoderPass(const TextEncoder& model, const Compute& compute)
      : weights_(model.weights()),
        config_(model.config()),
        compute_(compute),
        ops_(model.backend().Start(compute)) {}

  // `tap` listens under "model.language_model.".
  Tensor Run(const Tensor& inputs_embeds /*[1, tokens, hidden_size]*/, const TextEncoder::RopeTables& rope,
             const Tap& tap) {
    Tensor result;
    ops_->Run([&] {
      rope_ = {ops_->FromHost(rope.cos), ops_->FromHost(rope.sin)};
      Array hidden_states = ops_->FromHost(inputs_embeds);
      MakeScratch(hidden_states.dim(1));
      for (size_t i = 0; i < weights_.layers.size(); ++i) {
        compute_.Continue(i, weights_.layers.size());
        const auto index = static_cast<int64_t>(i);
        const Tap layer_tap = tap.Under("layers.", index, ".");
        RunSelfAttention(weights_.layers[i], hidden_states, layer_tap);
        RunMlp(weights_.layers[i], hidden_states, layer_tap);
        ops_->Show(tap.Under("layers.", index, ""), "", hidden_states);
        ops_->Finish(std::array{&hidden_states});
      }
      ops_->RmsNorm(weights_.norm, eps(), hidden_states);
      ops_->Show(tap, "norm", hidden_states);
      result = ops_->ToHost(hidden_states);
    });
    return result;
  }

 private:
  using Layer = TextEncoderWeights::Layer;

  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  void MakeScratch(int64_t tokens) {
    const int64_t q_width = config_.num_attention_heads * config_.head_dim();
    const int64_t kv_width = config_.num_key_value_heads * config_.head_dim();
    q_ = {ops_->New({1, tokens, q_width})};
    k_ = {ops_->New({1, tokens, kv_width})};
    v_ = {ops_->New({1, tokens, kv_width})};
    attended_ = {ops_->New({1, tokens, q_width})};
    gate_ = ops_->New({1, tokens, config_.intermediate_size});
    up_ = ops_->New({1, tokens, config_.intermediate_size});
  }

  void RunSelfAttention(const Layer& layer, Array& hidden_states, const Tap& tap) {
    const auto& w = layer.self_attn;
    const Projection qkv{.x = &hidden_states,
                         .norm = {Norm::Kind::kRms, eps(), &layer.input_layernorm, "input_layernorm"},
                         .products = {{&w.q_proj, "self_attn.q_proj", &q_[0]},
                                      {&w.k_proj, "self_attn.k_proj", &k_[0]},
                                      {&w.v_proj, "self_attn.v_proj", &v_[0]}}};
    ops_->Project({&qkv, 1}, tap);
    ops_->RotateHalves(rope_, q_[0]);
    ops_->RotateHalves(rope_, k_[0]);
    ops_->Attend({.q = &q_,
                  .k = &k_,
                  .v = &v_,
                  .heads = config_.num_attention_heads,
                  .kv_heads = config_.num_key_value_heads,
                  .head_dim = config_.head_dim(),
                  .causal = true},
                 attended_, tap);
    const GatedAddition o_proj{.x = &attended_[0],
                               .layer = &w.o_proj,
                               .names = {"self_attn.o_proj", "self_attn"},
                               .sum = &hidden_states};
    ops_->AddProjected({&o_proj, 1}, tap);
  }

  void RunMlp(const Layer& layer, Array& hidden_states, const Tap& tap) {
    const auto& w = layer.mlp;
    const Projection gate_and_up{
        .x = &hidden_states,
        .norm = {Norm::Kind::kRms, eps(), &layer.post_attention_layernorm, "post_attention_layernorm"},
        .products = {{&w.gate_proj, "mlp.gate_proj", &gate_}, {&w.up_proj, "mlp.up_proj", &up_}}};
    ops_->Project({&gate_and_up, 1}, tap);
    ops_->SiluMul(up_, gate_);
    const GatedAddition down_proj{
        .x = &gate_, .layer = &w.down_proj, .names = {"mlp.down_proj", "mlp"}, .sum = &hidden_states};
    ops_->AddProjected({&down_proj, 1}, tap);
  }

  const TextEncoderWeights& weights_;
  const TextEncoderConfig& config_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
  Rope rope_;
  Joint q_, k_, v_, attended_;  // [1, tokens, (kv_)heads · head_dim]
  Array gate_, up_;             // [1, tokens, intermediate_size]
};

}  // namespace

TextEncoder::TextEncoder(WeightStore store, Precision precision)
    : config_(ReadTextEncoderConfig(store)), store_(std::move(store)), weights_(config_, store_, precision) {}

void TextEncoder::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

Tensor TextEncoder::Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                           const Compute& compute, const Tap& tap) const {
  const Tap model = tap.Under("model.language_model.");
  const RopeTables rope = MakeRope(GetRopeIndex(input_ids, images));
  Tensor inputs_embeds = EmbedTokens(weights_.embed_tokens, input_ids, store_.path());
  model("embed_tokens", inputs_embeds);
  if (images) {
    CheckMropeSection();
    SpliceImages(input_ids, *images, store_.path(), inputs_embeds);
  }
  return TextEncoderPass(*this, compute).Run(inputs_embeds, rope, model);
}

}  // namespace qwen_image

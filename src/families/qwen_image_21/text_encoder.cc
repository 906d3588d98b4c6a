#include "families/qwen_image_21/text_encoder.h"

#include <algorithm>
#include <array>

#include "core/fail.h"

namespace qwen_image::qwen_image_21 {

TextEncoderWeights::TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store,
                                       Precision precision) {
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;

  WeightBinder binder(store);
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    return BindLinear(binder, name, out, in, Bias::kNo, precision);
  };
  embed_tokens = binder.Matrix("model.language_model.embed_tokens.weight", {config.vocab_size, hidden});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.language_model.layers.{}.", i);
    layers.push_back({
        .input_layernorm = binder.Floats(layer + "input_layernorm.weight", {hidden}),
        .self_attn = {.q_proj = linear(layer + "self_attn.q_proj", config.q_width(), hidden),
                      .k_proj = linear(layer + "self_attn.k_proj", config.kv_width(), hidden),
                      .v_proj = linear(layer + "self_attn.v_proj", config.kv_width(), hidden),
                      .o_proj = linear(layer + "self_attn.o_proj", hidden, config.q_width()),
                      .q_norm = binder.Floats(layer + "self_attn.q_norm.weight", {config.head_dim}),
                      .k_norm = binder.Floats(layer + "self_attn.k_norm.weight", {config.head_dim})},
        .post_attention_layernorm = binder.Floats(layer + "post_attention_layernorm.weight", {hidden}),
        .mlp = {.gate_proj = linear(layer + "mlp.gate_proj", intermediate, hidden),
                .up_proj = linear(layer + "mlp.up_proj", intermediate, hidden),
                .down_proj = linear(layer + "mlp.down_proj", hidden, intermediate)},
    });
  }
  binder.AllowUnused("model.language_model.norm.weight");  // the pipeline takes what comes before it
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

// What the first layers add to the hidden states of image tokens.
struct Deepstack {
  std::vector<int64_t> rows;         // the image tokens' places
  std::span<const Tensor> features;  // [rows, hidden_size] each
};

// Shows cosines or sines as transformers has them, [1, tokens, head_dim]: both halves of a head have them
// all. What a listener changes in the first half is taken over.
void ShowRope(const Tap& tap, std::string_view name, Tensor& table /*[tokens, head_dim / 2]*/) {
  if (!tap.Wants(name)) return;
  const int64_t tokens = table.dim(0), half = table.dim(1);
  Tensor shown({1, tokens, 2 * half});
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(table.row(t), half, shown.row(t));
    std::copy_n(table.row(t), half, shown.row(t) + half);
  }
  tap(name, shown);
  for (int64_t t = 0; t < tokens; ++t) std::copy_n(shown.row(t), half, table.row(t));
}

// One prompt's way through the layers.
class TextEncoderPass {
 public:
  TextEncoderPass(const TextEncoder& model, const Compute& compute)
      : weights_(model.weights()),
        config_(model.config()),
        compute_(compute),
        ops_(model.backend().Start(compute)) {}

  // `tap` listens under "model.language_model.".
  Tensor Run(const Tensor& inputs_embeds /*[1, tokens, hidden_size]*/, const RopeTables& rope,
             const Deepstack& deepstack, const Tap& tap) {
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
        if (i < deepstack.features.size()) {
          AddAtRows(deepstack.features[i], deepstack.rows, hidden_states);
          ops_->Show(tap.Under("layers.", index, ""), ":deepstack", hidden_states);
        }
        ops_->Finish(std::array{&hidden_states});
      }
      result = ops_->ToHost(hidden_states);
    });
    return result;
  }

 private:
  using Layer = TextEncoderWeights::Layer;

  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  void MakeScratch(int64_t tokens) {
    q_ = {ops_->New({1, tokens, config_.q_width()})};
    k_ = {ops_->New({1, tokens, config_.kv_width()})};
    v_ = {ops_->New({1, tokens, config_.kv_width()})};
    attended_ = {ops_->New({1, tokens, config_.q_width()})};
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
    constexpr auto kHalves = NormRope::Pairs::kHalves;
    ops_->NormAndRotate(
        std::array{NormRope{&q_[0], &w.q_norm, eps(), &rope_, "self_attn.q_norm", nullptr, kHalves},
                   NormRope{&k_[0], &w.k_norm, eps(), &rope_, "self_attn.k_norm", nullptr, kHalves}},
        tap);
    ops_->Attend({.q = &q_,
                  .k = &k_,
                  .v = &v_,
                  .heads = config_.num_attention_heads,
                  .kv_heads = config_.num_key_value_heads,
                  .head_dim = config_.head_dim,
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

  // As a sum with zeros everywhere else, which every device can add.
  void AddAtRows(const Tensor& features, const std::vector<int64_t>& rows, Array& hidden_states) {
    Tensor added(hidden_states.shape);
    std::fill_n(added.data(), added.size(), 0.0f);
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(features.row(static_cast<int64_t>(i)), config_.hidden_size, added.row(rows[i]));
    ops_->Add(ops_->FromHost(added), hidden_states);
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

void TextEncoder::CheckDeepstack(std::span<const Tensor> deepstack, const PromptImages& images) const {
  for (const Tensor& features : deepstack) {
    if (features.shape() == images.embeds.shape()) continue;
    Fail(ErrorKind::kBadInput,
         "{}: the vision encoder gives embeddings {}, but features {} for the first layers; they do not "
         "belong together",
         store_.path().string(), ToString(images.embeds.shape()), ToString(features.shape()));
  }
}

Tensor TextEncoder::Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                           std::span<const Tensor> deepstack, const Compute& compute, const Tap& tap) const {
  const Tap model = tap.Under("model.language_model.");
  RopeTables rope = MakeRope(config_, GetRopeIndex(input_ids, images));
  Tensor inputs_embeds = EmbedTokens(weights_.embed_tokens, input_ids, store_.path());
  model("embed_tokens", inputs_embeds);
  Deepstack added{.rows = {}, .features = deepstack};
  if (images) {
    SpliceImages(input_ids, *images, store_.path(), inputs_embeds);
    CheckDeepstack(deepstack, *images);
    for (size_t i = 0; i < input_ids.size(); ++i)
      if (input_ids[i] == images->image_token) added.rows.push_back(static_cast<int64_t>(i));
  }
  ShowRope(model, "rotary_emb:cos", rope.cos);
  ShowRope(model, "rotary_emb:sin", rope.sin);
  return TextEncoderPass(*this, compute).Run(inputs_embeds, rope, added, model);
}

}  // namespace qwen_image::qwen_image_21

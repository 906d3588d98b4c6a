#include "families/qwen_image/transformer_block.h"

#include <array>

namespace qwen_image {
namespace {

// The joint sequence is [text, image].
enum { kTxt, kImg };

std::array<int64_t, 2> TokensOf(const BlockState& state) { return {state.txt.dim(1), state.img.dim(1)}; }

}  // namespace

BlockPass::BlockPass(Ops& ops, const TransformerConfig& config, int64_t txt_tokens, int64_t img_tokens)
    : ops_(ops), config_(config) {
  const Shape joint = {1, txt_tokens + img_tokens, config.inner_dim()};
  query_ = ops.New(joint);
  key_ = ops.New(joint);
  value_ = ops.New(joint);
  attn_output_ = ops.New(joint);
  mlp_hidden_ = ops.New({1, txt_tokens + img_tokens, 4 * config.inner_dim()});
}

// With zero_cond_t (Edit-2511) references are modulated for t = 0.
Modulation BlockPass::ModulationOf(const Stream& w, const BlockState& state, int64_t part) const {
  const bool img = w.names == &TransformerWeights::StreamNames::kImg;
  const int64_t tokens = img ? state.img.dim(1) : state.txt.dim(1), drawn = state.drawn_tokens;
  Modulation modulation{.values = img ? &state.img_mod : &state.txt_mod,
                        .shift = part + kShift,
                        .scale = part + kScale,
                        .gate = part + kGate,
                        .spans = {{0, tokens, 0}},
                        .by_row = img && config_.zero_cond_t};
  if (modulation.by_row && drawn < tokens) modulation.spans = {{0, drawn, 0}, {drawn, tokens - drawn, 1}};
  return modulation;
}

void BlockPass::Attend(const TransformerWeights::Block& w, BlockState& state, const Tap& tap) {
  const std::array<int64_t, 2> tokens = TokensOf(state);
  Joint q = ops_.PartsOf(query_, tokens), k = ops_.PartsOf(key_, tokens), v = ops_.PartsOf(value_, tokens);
  Joint attn_output = ops_.PartsOf(attn_output_, tokens);

  const auto qkv = [&](const Stream& stream, const Array& x, size_t part) {
    const auto& names = *stream.names;
    return Projection{.x = &x,
                      .norm = {Norm::Kind::kLayer, kTransformerEps, nullptr, names.norm1},
                      .modulation = ModulationOf(stream, state, kAttentionPart),
                      .modulated = names.modulated1,
                      .products = {{&stream.to_q, names.to_q, &q[part]},
                                   {&stream.to_k, names.to_k, &k[part]},
                                   {&stream.to_v, names.to_v, &v[part]}}};
  };
  ops_.Project(std::array{qkv(w.img, state.img, kImg), qkv(w.txt, state.txt, kTxt)}, tap);

  const auto rotated = [&](Array& x, const std::vector<float>& weight, const Rope& rope, const char* norm,
                           const char* name) {
    return NormRope{&x, &weight, kTransformerEps, &rope, norm, name};
  };
  const auto &img = *w.img.names, &txt = *w.txt.names;
  ops_.NormAndRotate(std::array{rotated(q[kImg], w.img.norm_q, state.img_rope, img.norm_q, img.query_rope),
                                rotated(k[kImg], w.img.norm_k, state.img_rope, img.norm_k, img.key_rope),
                                rotated(q[kTxt], w.txt.norm_q, state.txt_rope, txt.norm_q, txt.query_rope),
                                rotated(k[kTxt], w.txt.norm_k, state.txt_rope, txt.norm_k, txt.key_rope)},
                     tap);

  ops_.Attend({.q = &q,
               .k = &k,
               .v = &v,
               .heads = config_.num_attention_heads,
               .kv_heads = config_.num_attention_heads,
               .head_dim = config_.attention_head_dim,
               .int8 = w.img.to_q.int8_group > 0,
               .weights = ":attn_weights",
               .entropy = ":attn_entropy",
               .output = ":attn_output"},
              attn_output, tap);

  const auto out = [&](const Stream& stream, Array& hidden_states, size_t part) {
    return GatedAddition{.x = &attn_output[part],
                         .layer = &stream.to_out,
                         .names = {stream.names->to_out},
                         .gate = ModulationOf(stream, state, kAttentionPart),
                         .gate_name = stream.names->gate1,
                         .sum = &hidden_states,
                         .sum_name = stream.names->attn_residual};
  };
  ops_.AddProjected(std::array{out(w.img, state.img, kImg), out(w.txt, state.txt, kTxt)}, tap);
}

void BlockPass::RunMlp(const TransformerWeights::Block& w, BlockState& state, const Tap& tap) {
  Joint hidden = ops_.PartsOf(mlp_hidden_, TokensOf(state));
  const auto proj = [&](const Stream& stream, const Array& x, size_t part) {
    const auto& names = *stream.names;
    return Projection{.x = &x,
                      .norm = {Norm::Kind::kLayer, kTransformerEps, nullptr, names.norm2},
                      .modulation = ModulationOf(stream, state, kMlpPart),
                      .modulated = names.modulated2,
                      .products = {{&stream.mlp.proj, names.mlp_proj, &hidden[part]}},
                      .activation = Activation::kGeluTanh,
                      .activated = names.mlp_gelu};
  };
  ops_.Project(std::array{proj(w.img, state.img, kImg), proj(w.txt, state.txt, kTxt)}, tap);

  const auto out = [&](const Stream& stream, Array& hidden_states, size_t part) {
    const auto& names = *stream.names;
    return GatedAddition{.x = &hidden[part],
                         .layer = &stream.mlp.out,
                         .names = {names.mlp_out, names.mlp},
                         .gate = ModulationOf(stream, state, kMlpPart),
                         .gate_name = names.gate2,
                         .sum = &hidden_states,
                         .sum_name = names.stream};
  };
  ops_.AddProjected(std::array{out(w.img, state.img, kImg), out(w.txt, state.txt, kTxt)}, tap);
}

void BlockPass::Run(const TransformerWeights::Block& w, BlockState& state, const Tap& tap) {
  ops_.Show(tap, w.img.names->mod, state.img_mod);
  ops_.Show(tap, w.txt.names->mod, state.txt_mod);
  Attend(w, state, tap);
  RunMlp(w, state, tap);
}

}  // namespace qwen_image

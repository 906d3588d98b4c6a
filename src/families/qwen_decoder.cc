#include "families/qwen_decoder.h"

#include <array>

namespace qwen_image {

DecoderLayer BindDecoderLayer(WeightBinder& binder, const std::string& prefix, const DecoderShape& shape,
                              DecoderKind kind, Precision precision) {
  const auto linear = [&](const char* name, int64_t out, int64_t in, Bias bias = Bias::kNo) {
    return BindLinear(binder, prefix + name, out, in, bias, precision);
  };
  const auto norm = [&](const char* name, int64_t width) { return binder.Floats(prefix + name, {width}); };
  const int64_t hidden = shape.hidden_size, intermediate = shape.intermediate_size;
  const Bias bias = kind == DecoderKind::kQwen25 ? Bias::kYes : Bias::kNo;
  const auto head_norm = [&](const char* name) {
    return kind == DecoderKind::kQwen3 ? norm(name, shape.head_dim) : std::vector<float>();
  };
  return {
      .input_layernorm = norm("input_layernorm.weight", hidden),
      .self_attn = {.q_proj = linear("self_attn.q_proj", shape.q_width(), hidden, bias),
                    .k_proj = linear("self_attn.k_proj", shape.kv_width(), hidden, bias),
                    .v_proj = linear("self_attn.v_proj", shape.kv_width(), hidden, bias),
                    .o_proj = linear("self_attn.o_proj", hidden, shape.q_width()),
                    .q_norm = head_norm("self_attn.q_norm.weight"),
                    .k_norm = head_norm("self_attn.k_norm.weight")},
      .post_attention_layernorm = norm("post_attention_layernorm.weight", hidden),
      .mlp = {.gate_proj = linear("mlp.gate_proj", intermediate, hidden),
              .up_proj = linear("mlp.up_proj", intermediate, hidden),
              .down_proj = linear("mlp.down_proj", hidden, intermediate)},
  };
}

std::vector<const Linear*> LayersOf(const std::vector<DecoderLayer>& layers) {
  std::vector<const Linear*> all;
  for (const DecoderLayer& w : layers)
    all.insert(all.end(), {&w.self_attn.q_proj, &w.self_attn.k_proj, &w.self_attn.v_proj, &w.self_attn.o_proj,
                           &w.mlp.gate_proj, &w.mlp.up_proj, &w.mlp.down_proj});
  return all;
}

DecoderPass::DecoderPass(const DecoderShape& shape, Ops& ops, const RopeTables& rope)
    : shape_(shape),
      eps_(static_cast<float>(shape.eps)),
      ops_(ops),
      rope_{ops.FromHost(rope.cos), ops.FromHost(rope.sin)} {
  const int64_t tokens = rope.cos.dim(0);
  q_ = {ops_.New({1, tokens, shape.q_width()})};
  k_ = {ops_.New({1, tokens, shape.kv_width()})};
  v_ = {ops_.New({1, tokens, shape.kv_width()})};
  attended_ = {ops_.New({1, tokens, shape.q_width()})};
  gate_ = ops_.New({1, tokens, shape.intermediate_size});
  up_ = ops_.New({1, tokens, shape.intermediate_size});
}

void DecoderPass::Run(const DecoderLayer& layer, Array& hidden_states, const Tap& tap) {
  RunSelfAttention(layer, hidden_states, tap);
  RunMlp(layer, hidden_states, tap);
}

void DecoderPass::RunSelfAttention(const DecoderLayer& layer, Array& hidden_states, const Tap& tap) {
  const auto& w = layer.self_attn;
  const Projection qkv{.x = &hidden_states,
                       .norm = {Norm::Kind::kRms, eps_, &layer.input_layernorm, "input_layernorm"},
                       .products = {{&w.q_proj, "self_attn.q_proj", &q_[0]},
                                    {&w.k_proj, "self_attn.k_proj", &k_[0]},
                                    {&w.v_proj, "self_attn.v_proj", &v_[0]}}};
  ops_.Project({&qkv, 1}, tap);
  Rotate(w, tap);
  ops_.Attend({.q = &q_,
               .k = &k_,
               .v = &v_,
               .heads = shape_.heads,
               .kv_heads = shape_.kv_heads,
               .head_dim = shape_.head_dim,
               .causal = true},
              attended_, tap);
  const GatedAddition o_proj{.x = &attended_[0],
                             .layer = &w.o_proj,
                             .names = {"self_attn.o_proj", "self_attn"},
                             .sum = &hidden_states};
  ops_.AddProjected({&o_proj, 1}, tap);
}

void DecoderPass::Rotate(const DecoderLayer::SelfAttention& w, const Tap& tap) {
  if (w.q_norm.empty()) {
    ops_.RotateHalves(rope_, q_[0]);
    ops_.RotateHalves(rope_, k_[0]);
    return;
  }
  constexpr auto kHalves = NormRope::Pairs::kHalves;
  ops_.NormAndRotate(
      std::array{NormRope{&q_[0], &w.q_norm, eps_, &rope_, "self_attn.q_norm", nullptr, kHalves},
                 NormRope{&k_[0], &w.k_norm, eps_, &rope_, "self_attn.k_norm", nullptr, kHalves}},
      tap);
}

void DecoderPass::RunMlp(const DecoderLayer& layer, Array& hidden_states, const Tap& tap) {
  const auto& w = layer.mlp;
  const Projection gate_and_up{
      .x = &hidden_states,
      .norm = {Norm::Kind::kRms, eps_, &layer.post_attention_layernorm, "post_attention_layernorm"},
      .products = {{&w.gate_proj, "mlp.gate_proj", &gate_}, {&w.up_proj, "mlp.up_proj", &up_}}};
  ops_.Project({&gate_and_up, 1}, tap);
  ops_.SiluMul(up_, gate_);
  const GatedAddition down_proj{
      .x = &gate_, .layer = &w.down_proj, .names = {"mlp.down_proj", "mlp"}, .sum = &hidden_states};
  ops_.AddProjected({&down_proj, 1}, tap);
}

}  // namespace qwen_image

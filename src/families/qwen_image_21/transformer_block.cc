#include "families/qwen_image_21/transformer_block.h"

#include <array>

namespace qwen_image::qwen_image_21 {

BlockPass::BlockPass(Ops& ops, const TransformerConfig& config, int64_t rows, int64_t tokens)
    : ops_(ops), config_(config), eps_(static_cast<float>(config.eps)) {
  const int64_t dim = config.inner_dim();
  query_ = ops.New({1, rows, dim});
  attn_output_ = ops.New({1, rows, dim});
  key_ = ops.New({1, tokens, dim});
  value_ = ops.New({1, tokens, dim});
}

// The prefix is modulated for t = 0.
Modulation BlockPass::ModulationOf(const BlockState& state, int64_t scale, int64_t gate) const {
  const int64_t rows = state.hidden.dim(1), prefix = state.joint() ? state.prefix : 0;
  Modulation modulation{
      .values = &state.modulation, .scale = scale, .gate = gate, .spans = {}, .by_row = true};
  if (prefix > 0) modulation.spans.push_back({0, prefix, kPrefixRow});
  modulation.spans.push_back({prefix, rows - prefix, kTargetRow});
  return modulation;
}

void BlockPass::Attend(const TransformerWeights::Block& w, BlockState& state, PrefixCache& kept,
                       std::optional<Keeping> keep, const Tap& tap) {
  const int64_t rows = state.hidden.dim(1);
  const std::array<int64_t, 1> own = {rows};
  const std::vector<int64_t> all = state.joint() ? std::vector{rows} : std::vector{state.prefix, rows};
  Joint q = ops_.PartsOf(query_, own), attn_output = ops_.PartsOf(attn_output_, own);
  Joint k = ops_.PartsOf(key_, all), v = ops_.PartsOf(value_, all);

  const Modulation modulation = ModulationOf(state, kAttentionScale, kAttentionGate);
  const Projection qkv{.x = &state.hidden,
                       .norm = {Norm::Kind::kLayer, eps_, nullptr, ".img_norm1"},
                       .modulation = modulation,
                       .modulated = ":modulated1",
                       .products = {{&w.to_q, ".attn.to_q", &q.back()},
                                    {&w.to_k, ".attn.to_k", &k.back()},
                                    {&w.to_v, ".attn.to_v", &v.back()}}};
  ops_.Project({&qkv, 1}, tap);
  ops_.NormAndRotate(
      std::array{NormRope{&q.back(), &w.norm_q, eps_, &state.rope, ".attn.norm_q", ":query_rope"},
                 NormRope{&k.back(), &w.norm_k, eps_, &state.rope, ".attn.norm_k", ":key_rope"}},
      tap);
  if (!state.joint()) {
    ops_.Restore(kept.key, k.front());
    ops_.Restore(kept.value, v.front());
  } else if (keep) {
    kept = {ops_.Keep(ops_.Rows(k.front(), 0, state.prefix), *keep),
            ops_.Keep(ops_.Rows(v.front(), 0, state.prefix), *keep)};
  }

  ops_.Attend({.q = &q,
               .k = &k,
               .v = &v,
               .heads = config_.num_attention_heads,
               .kv_heads = config_.num_attention_heads,
               .head_dim = config_.attention_head_dim,
               .int8 = w.to_q.int8_group > 0,
               .spans = state.spans,
               .weights = ":attn_weights",
               .entropy = ":attn_entropy",
               .output = ":attn_output"},
              attn_output, tap);
  const GatedAddition out{.x = &attn_output.back(),
                          .layer = &w.to_out,
                          .names = {".attn.to_out.0", ".attn"},
                          .gate = modulation,
                          .gate_name = ":gate1",
                          .sum = &state.hidden,
                          .sum_name = ":attn_residual"};
  ops_.AddProjected({&out, 1}, tap);
}

void BlockPass::RunMlp(const TransformerWeights::Block& w, BlockState& state, const Tap& tap) {
  ops_.AddGatedMlp({.x = &state.hidden,
                    .norm = {Norm::Kind::kLayer, eps_, nullptr, ".img_norm2"},
                    .modulation = ModulationOf(state, kMlpScale, kMlpGate),
                    .modulated = ":modulated2",
                    .gate_layer = &w.gate_layer,
                    .up = &w.proj,
                    .down = &w.out,
                    .gate_layer_name = ".img_mlp.gate_layer",
                    .up_name = ".img_mlp.proj",
                    .down_names = {".img_mlp.out", ".img_mlp"},
                    .gate_name = ":gate2",
                    .sum = &state.hidden,
                    .sum_name = ""},  // the block's own output
                   tap);
}

void BlockPass::Run(const TransformerWeights::Block& w, BlockState& state, PrefixCache& kept,
                    std::optional<Keeping> keep, const Tap& tap) {
  Attend(w, state, kept, keep, tap);
  RunMlp(w, state, tap);
}

}  // namespace qwen_image::qwen_image_21

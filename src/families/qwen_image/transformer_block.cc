// One block of the transformer, step by step: every intermediate tensor can be seen and replaced. Where
// nobody listens, two kernels that follow each other are one, with the same bits.
#include "families/qwen_image/transformer_impl.h"

namespace qwen_image {

bool WantsAttention(const Tap& tap) { return tap.Wants(":attn_weights") || tap.Wants(":attn_entropy"); }

AttentionShape JointAttention(const TransformerConfig& config) {
  return {.heads = config.num_attention_heads,
          .kv_heads = config.num_attention_heads,
          .head_dim = config.attention_head_dim};
}

void ShowAttention(ConstView query, ConstView key, const AttentionShape& shape, ThreadPool& pool,
                   const Tap& tap) {
  constexpr int64_t kSampledQueries = 64;  // enough for a mean over a head
  if (tap.Wants(":attn_weights")) {
    Tensor weights({1, shape.heads, query.rows, key.rows});
    AttentionWeights(query, key, shape, weights.data(), pool);
    tap(":attn_weights", weights);
  }
  if (tap.Wants(":attn_entropy")) {
    Tensor entropy({1, shape.heads});
    AttentionEntropy(query, key, shape, kSampledQueries, entropy.data(), pool);
    tap(":attn_entropy", entropy);
  }
}

// With zero_cond_t (Edit-2511) references are modulated for t = 0.
Transformer::Modulation Transformer::ImgModulation(const Sequence& sequence, Scratch& s) const {
  const int64_t tokens = sequence.img.dim(1), drawn = sequence.drawn_tokens;
  if (!config_.zero_cond_t || drawn == tokens) return {{{0, tokens}, s.img_mod.row(0)}};
  return {{{0, drawn}, s.img_mod.row(0)}, {{drawn, tokens - drawn}, s.img_mod.row(1)}};
}

void Transformer::NormAndModulate(const Tensor& hidden_states, const Modulation& modulation, int64_t part,
                                  float* x, const char* norm, const char* modulated, ThreadPool& pool,
                                  const Tap& tap) const {
  const int64_t dim = config_.inner_dim(), tokens = hidden_states.dim(1);
  if (tap) {
    LayerNorm(ViewOf(hidden_states), kTransformerEps, {x, tokens, dim}, pool);
    tap(norm, x, {1, tokens, dim});
  }
  for (const auto& [span, mod] : modulation) {
    const float *shift = mod + (part + kShift) * dim, *scale = mod + (part + kScale) * dim;
    const View rows = {x + span.begin * dim, span.count, dim};
    if (tap) {
      Modulate(rows, scale, shift, rows, pool);
    } else {
      LayerNormModulate(ViewOf(hidden_states).Rows(span.begin, span.count), kTransformerEps, scale, shift,
                        rows, pool);
    }
  }
  tap(modulated, x, {1, tokens, dim});
}

// The official block makes one gate for all tokens or, with zero_cond_t, one for each.
void Transformer::TapGates(const Stream& w, const Modulation& modulation, int64_t part, Scratch& s,
                           const Tap& tap) const {
  const int64_t dim = config_.inner_dim();
  s.token_gates = {};
  if (!tap) return;
  const char* name = part == kAttentionPart ? w.names->gate1 : w.names->gate2;
  if (!config_.zero_cond_t || w.names != &StreamNames::kImg) {
    tap(name, modulation.front().mod + (part + kGate) * dim, {1, dim});
    return;
  }
  s.token_gates = Tensor({1, modulation.back().span.begin + modulation.back().span.count, dim});
  for (const auto& [span, mod] : modulation) {
    for (int64_t i = 0; i < span.count; ++i)
      std::copy_n(mod + (part + kGate) * dim, dim, s.token_gates.row(span.begin + i));
  }
  tap(name, s.token_gates);
}

// hidden_states += gate · s.branch
void Transformer::AddGatedBranch(const Modulation& modulation, int64_t part, const Scratch& s,
                                 Tensor& hidden_states, ThreadPool& pool) const {
  const int64_t dim = config_.inner_dim();
  if (s.token_gates.size() > 0) {
    for (int64_t i = 0; i < hidden_states.dim(1); ++i)
      AddGated({s.branch.row(i), 1, dim}, s.token_gates.row(i), {hidden_states.row(i), 1, dim}, pool);
    return;
  }
  for (const auto& [span, mod] : modulation) {
    AddGated({s.branch.row(span.begin), span.count, dim}, mod + (part + kGate) * dim,
             ViewOf(hidden_states).Rows(span.begin, span.count), pool);
  }
}

// norm1, modulation, q/k/v with their norms and RoPE, into this stream's rows of the joint sequence.
void Transformer::ProjectQkv(const Stream& w, const Tensor& hidden_states, const Modulation& modulation,
                             Span span, const RopeTable& rope, Scratch& s, ThreadPool& pool,
                             const Tap& tap) const {
  const int64_t dim = config_.inner_dim(), heads = config_.num_attention_heads,
                head_dim = config_.attention_head_dim;
  const StreamNames& names = *w.names;
  const Shape flat = {1, span.count, dim}, split = {1, span.count, heads, head_dim};
  float *q = s.query.row(span.begin), *k = s.key.row(span.begin), *v = s.value.row(span.begin);
  float* x = s.modulated.data();
  NormAndModulate(hidden_states, modulation, kAttentionPart, x, names.norm1, names.modulated1, pool, tap);

  w.to_q(x, span.count, q, pool);
  tap(names.to_q, q, flat);
  w.to_k(x, span.count, k, pool);
  tap(names.to_k, k, flat);
  w.to_v(x, span.count, v, pool);
  tap(names.to_v, v, flat);

  const RopeAngles angles = {rope.cos.row(span.begin), rope.sin.row(span.begin), head_dim};
  const View q_view = {q, span.count, dim}, k_view = {k, span.count, dim};
  if (!tap) {
    RmsNormRope(q_view, w.norm_q.data(), kTransformerEps, angles, pool);
    RmsNormRope(k_view, w.norm_k.data(), kTransformerEps, angles, pool);
    return;
  }
  RmsNormHeads(q_view, w.norm_q.data(), head_dim, kTransformerEps, pool);
  tap(names.norm_q, q, split);
  RmsNormHeads(k_view, w.norm_k.data(), head_dim, kTransformerEps, pool);
  tap(names.norm_k, k, split);
  RopeInterleaved(q_view, angles, pool);
  tap(names.query_rope, q, split);
  RopeInterleaved(k_view, angles, pool);
  tap(names.key_rope, k, split);
}

// Output projection and gated residual of this stream's rows of the joint attention.
void Transformer::FinishAttention(const Stream& w, Tensor& hidden_states, const Modulation& modulation,
                                  Span span, Scratch& s, ThreadPool& pool, const Tap& tap) const {
  const StreamNames& names = *w.names;
  w.to_out(s.attn_output.row(span.begin), span.count, s.branch.data(), pool);
  tap(names.to_out, s.branch.data(), {1, span.count, config_.inner_dim()});
  TapGates(w, modulation, kAttentionPart, s, tap);
  AddGatedBranch(modulation, kAttentionPart, s, hidden_states, pool);
  tap(names.attn_residual, hidden_states);
}

// norm2, modulation, MLP, gated residual.
void Transformer::RunMlp(const Stream& w, Tensor& hidden_states, const Modulation& modulation, Scratch& s,
                         ThreadPool& pool, const Tap& tap) const {
  const int64_t dim = config_.inner_dim(), tokens = hidden_states.dim(1);
  const StreamNames& names = *w.names;
  const Shape flat = {1, tokens, dim}, wide = {1, tokens, 4 * dim};
  float* x = s.modulated.data();
  NormAndModulate(hidden_states, modulation, kMlpPart, x, names.norm2, names.modulated2, pool, tap);

  w.mlp.proj(x, tokens, s.mlp_hidden.data(), pool);
  tap(names.mlp_proj, s.mlp_hidden.data(), wide);
  const View hidden = {s.mlp_hidden.data(), tokens, 4 * dim};
  GeluTanh(hidden, hidden, pool);
  tap(names.mlp_gelu, s.mlp_hidden.data(), wide);
  w.mlp.out(s.mlp_hidden.data(), tokens, s.branch.data(), pool);
  tap(names.mlp_out, s.branch.data(), flat);
  tap(names.mlp, s.branch.data(), flat);
  TapGates(w, modulation, kMlpPart, s, tap);
  AddGatedBranch(modulation, kMlpPart, s, hidden_states, pool);
  tap(names.stream, hidden_states);
}

void Transformer::Attend(int64_t tokens, Scratch& s, ThreadPool& pool, const Tap& tap) const {
  const AttentionShape shape = JointAttention(config_);
  const auto rows = [&](Tensor& x) { return View(x.data(), tokens, config_.inner_dim()); };
  ShowAttention(rows(s.query), rows(s.key), shape, pool, tap);
  Attention(rows(s.query), rows(s.key), rows(s.value), shape, rows(s.attn_output), pool);
  tap(":attn_output", s.attn_output.data(), {1, tokens, config_.inner_dim()});
}

void Transformer::RunBlock(const Block& w, Sequence& sequence, Scratch& s, ThreadPool& pool,
                           const Tap& tap) const {
  Tensor &img = sequence.img, &txt = sequence.txt;
  const Span txt_span = {0, txt.dim(1)}, img_span = {txt.dim(1), img.dim(1)};
  tap(w.img.names->mod, s.img_mod);
  tap(w.txt.names->mod, s.txt_mod);
  const Modulation img_mod = ImgModulation(sequence, s), txt_mod = {{txt_span, s.txt_mod.data()}};
  ProjectQkv(w.img, img, img_mod, img_span, sequence.rope, s, pool, tap);
  ProjectQkv(w.txt, txt, txt_mod, txt_span, sequence.rope, s, pool, tap);
  Attend(txt_span.count + img_span.count, s, pool, tap);
  FinishAttention(w.img, img, img_mod, img_span, s, pool, tap);
  FinishAttention(w.txt, txt, txt_mod, txt_span, s, pool, tap);
  RunMlp(w.img, img, img_mod, s, pool, tap);
  RunMlp(w.txt, txt, txt_mod, s, pool, tap);
}

}  // namespace qwen_image

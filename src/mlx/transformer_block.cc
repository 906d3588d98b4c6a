// One block of the transformer: every intermediate array can be seen and replaced.
#include "mlx/transformer_impl.h"

namespace qwen_image::on_mlx {

// With zero_cond_t (Edit-2511) references are modulated for t = 0: every token has a row of its own then.
Transformer::Modulation Transformer::ModulationOf(const Stream& w, const array& mod, int64_t part,
                                                  const array& temb_row) const {
  const int dim = static_cast<int>(config_.inner_dim()), rows = mod.shape(0);
  const bool by_token = config_.zero_cond_t && w.names == &TransformerWeights::StreamNames::kImg;
  const auto one = [&](int64_t which) {
    const int begin = static_cast<int>(part + which) * dim;
    const array values = mx::slice(mod, {0, begin}, {by_token ? rows : 1, begin + dim});
    return by_token ? mx::expand_dims(mx::take(values, temb_row, 0), 0) : values;
  };
  return {one(kShift), one(kScale), one(kGate)};
}

array Transformer::NormAndModulate(const array& hidden_states, const Modulation& modulation, const char* norm,
                                   const char* modulated, const Tap& tap) const {
  array x = mx::fast::layer_norm(hidden_states, {}, {}, kTransformerEps);
  TapArray(tap, norm, x);
  x = x * (array(1.0f) + modulation.scale) + modulation.shift;
  TapArray(tap, modulated, x);
  return mx::astype(x, placement_.activations);
}

// hidden_states += gate · branch
void Transformer::AddGated(const array& branch, Modulation& modulation, const char* name,
                           array& hidden_states, const Tap& tap) const {
  TapArray(tap, name, modulation.gate);
  hidden_states = hidden_states + modulation.gate * mx::astype(branch, mx::float32);
}

// norm1, modulation, q/k/v with their norms and RoPE.
Transformer::Qkv Transformer::ProjectQkv(const Stream& w, const array& hidden_states,
                                         const Modulation& modulation, const array& cos, const array& sin,
                                         const Tap& tap) const {
  const TransformerWeights::StreamNames& names = *w.names;
  const array x = NormAndModulate(hidden_states, modulation, names.norm1, names.modulated1, tap);
  const mx::Shape heads = {1, x.shape(1), static_cast<int>(config_.num_attention_heads),
                           static_cast<int>(config_.attention_head_dim)};
  array q = w.to_q(x);
  TapArray(tap, names.to_q, q);
  array k = w.to_k(x);
  TapArray(tap, names.to_k, k);
  array v = w.to_v(x);
  TapArray(tap, names.to_v, v);

  q = mx::fast::rms_norm(mx::reshape(q, heads), w.norm_q, kTransformerEps);
  TapArray(tap, names.norm_q, q);
  k = mx::fast::rms_norm(mx::reshape(k, heads), w.norm_k, kTransformerEps);
  TapArray(tap, names.norm_k, k);
  q = RopeInterleaved(q, cos, sin);
  TapArray(tap, names.query_rope, q);
  k = RopeInterleaved(k, cos, sin);
  TapArray(tap, names.key_rope, k);
  return {q, k, mx::reshape(v, heads)};
}

// The joint sequence is [text, image]. → [1, tokens, inner_dim]
array Transformer::Attend(const Qkv& txt, const Qkv& img, ThreadPool* pool, const Tap& tap) const {
  const array q = mx::concatenate({txt.q, img.q}, 1), k = mx::concatenate({txt.k, img.k}, 1);
  if (WantsAttention(tap)) {
    const Tensor query = ToHost(q), key = ToHost(k);
    const int64_t tokens = q.shape(1), dim = config_.inner_dim();
    ShowAttention({query.data(), tokens, dim}, {key.data(), tokens, dim}, JointAttention(config_), *pool,
                  tap);
  }
  array attn_output = Attention(q, k, mx::concatenate({txt.v, img.v}, 1));
  TapArray(tap, ":attn_output", attn_output);
  return attn_output;
}

// Output projection and gated residual of this stream's rows of the joint attention.
void Transformer::FinishAttention(const Stream& w, const array& attn_output, Modulation& modulation,
                                  array& hidden_states, const Tap& tap) const {
  array branch = w.to_out(attn_output);
  TapArray(tap, w.names->to_out, branch);
  AddGated(branch, modulation, w.names->gate1, hidden_states, tap);
  TapArray(tap, w.names->attn_residual, hidden_states);
}

// norm2, modulation, MLP, gated residual.
void Transformer::RunMlp(const Stream& w, Modulation& modulation, array& hidden_states,
                         const Tap& tap) const {
  const TransformerWeights::StreamNames& names = *w.names;
  const array x = NormAndModulate(hidden_states, modulation, names.norm2, names.modulated2, tap);
  array hidden = w.mlp_proj(x);
  TapArray(tap, names.mlp_proj, hidden);
  hidden = GeluTanh(hidden);
  TapArray(tap, names.mlp_gelu, hidden);
  array branch = w.mlp_out(hidden);
  TapArray(tap, names.mlp_out, branch);
  TapArray(tap, names.mlp, branch);
  AddGated(branch, modulation, names.gate2, hidden_states, tap);
  TapArray(tap, names.stream, hidden_states);
}

void Transformer::RunBlock(const Block& w, Sequence& sequence, const Tap& tap) const {
  array &img = sequence.img, &txt = sequence.txt;
  array img_mod = w.img.mod(sequence.silu_temb);
  TapArray(tap, w.img.names->mod, img_mod);
  array txt_mod = w.txt.mod(mx::slice(sequence.silu_temb, {0, 0}, {1, sequence.silu_temb.shape(1)}));
  TapArray(tap, w.txt.names->mod, txt_mod);
  const auto modulation = [&](const Stream& stream, const array& mod, int64_t part) {
    return ModulationOf(stream, mod, part, sequence.temb_row);
  };
  Modulation img_mod1 = modulation(w.img, img_mod, kAttentionPart),
             txt_mod1 = modulation(w.txt, txt_mod, kAttentionPart),
             img_mod2 = modulation(w.img, img_mod, kMlpPart), txt_mod2 = modulation(w.txt, txt_mod, kMlpPart);

  const int text = txt.shape(1);  // the first rows of what both streams share
  const std::vector<array> cos = mx::split(sequence.cos, mx::Shape{text}, 0),
                           sin = mx::split(sequence.sin, mx::Shape{text}, 0);
  const Qkv img_qkv = ProjectQkv(w.img, img, img_mod1, cos[1], sin[1], tap);
  const Qkv txt_qkv = ProjectQkv(w.txt, txt, txt_mod1, cos[0], sin[0], tap);
  const std::vector<array> attn_output =
      mx::split(Attend(txt_qkv, img_qkv, sequence.pool, tap), mx::Shape{text}, 1);
  FinishAttention(w.img, attn_output[1], img_mod1, img, tap);
  FinishAttention(w.txt, attn_output[0], txt_mod1, txt, tap);
  RunMlp(w.img, img_mod2, img, tap);
  RunMlp(w.txt, txt_mod2, txt, tap);
}

// All blocks of one form share a compiled function, whose arguments are the sequence and the block's weights.
void Transformer::RunCompiled(const Block& w, Sequence& sequence) const {
  Compiled& compiled = compiled_[w.form];
  if (!compiled) {
    compiled = mx::compile([this, block = w, tokens = sequence.drawn_tokens](const std::vector<array>& x) {
      Block with_weights = block;
      size_t next = 6;
      with_weights.Visit([&](array& weight) { weight = x[next++]; });
      Sequence inside{x[0], x[1], tokens, x[2], x[3], x[4], x[5], nullptr, Tap()};
      RunBlock(with_weights, inside, Tap());
      return std::vector<array>{inside.img, inside.txt};
    });
  }
  std::vector<array> arguments = {sequence.img,      sequence.txt, sequence.silu_temb,
                                  sequence.temb_row, sequence.cos, sequence.sin};
  Block weights = w;
  weights.Visit([&](array& weight) { arguments.push_back(weight); });
  const std::vector<array> done = compiled(arguments);
  sequence.img = done[0];
  sequence.txt = done[1];
}

}  // namespace qwen_image::on_mlx

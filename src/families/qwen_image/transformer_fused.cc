// One block of the transformer for weights in up to 8 bits, when nobody listens: norms and modulation are
// computed row by row as the rows are quantized, products end with their bias, GELU, gate and residual, and
// both streams' products run together. It has the same bits as the block step by step (transformer_block.cc).
#include "families/qwen_image/transformer_impl.h"

namespace qwen_image {
namespace {

bool InGroupsOf(int group, std::initializer_list<const Linear*> layers) {
  return group > 0 && std::all_of(layers.begin(), layers.end(), [&](const Linear* layer) {
           return layer->int8_group == group && layer->updates.empty();
         });
}

Int8Product WithGelu(const Linear& layer, const Int8Activations& x, float* y) {
  Int8Product product = layer.ProductOf(x, y);
  product.gelu = true;
  return product;
}

void QuantizeRows(const float* x, int64_t rows, const Linear& layer, Int8Activations& to, ThreadPool& pool) {
  const int64_t cols = layer.weight.cols;
  to.Quantize(
      rows, cols, layer.int8_group, Int8Fineness::kWhereNeeded,
      [&](int64_t row, float*) { return x + row * cols; }, pool);
}

}  // namespace

bool Transformer::CanFuse(const Block& w) {
  const auto can_fuse = [](const Stream& stream) {
    return InGroupsOf(stream.to_q.int8_group, {&stream.to_q, &stream.to_k, &stream.to_v}) &&
           InGroupsOf(stream.to_out.int8_group, {&stream.to_out}) &&
           InGroupsOf(stream.mlp.proj.int8_group, {&stream.mlp.proj}) &&
           InGroupsOf(stream.mlp.out.int8_group, {&stream.mlp.out});
  };
  return can_fuse(w.img) && can_fuse(w.txt);
}

// LayerNorm and modulation of the hidden states, straight into 8 bits.
void Transformer::QuantizeModulated(const Tensor& hidden_states, const Modulation& modulation, int64_t part,
                                    const Linear& layer, Int8Activations& to, ThreadPool& pool) const {
  const int64_t cols = hidden_states.dim(2);
  const auto modulated = [&](int64_t row, float* buffer) {
    const bool late = row >= modulation.back().span.begin;
    const float* mod = late ? modulation.back().mod : modulation.front().mod;
    LayerNormModulate({hidden_states.row(row), 1, cols}, kTransformerEps, mod + (part + kScale) * cols,
                      mod + (part + kShift) * cols, {buffer, 1, cols}, pool);
    return static_cast<const float*>(buffer);
  };
  to.Quantize(hidden_states.dim(1), cols, layer.int8_group, Int8Fineness::kWhereNeeded, modulated, pool);
}

Int8Product Transformer::Gated(const Linear& layer, const Int8Activations& x, const Modulation& modulation,
                               int64_t part, Tensor& hidden_states) const {
  const int64_t gate = (part + kGate) * config_.inner_dim();
  Int8Product product = layer.ProductOf(x, hidden_states.data());
  product.gate = modulation.front().mod + gate;
  if (modulation.size() > 1) {
    product.late_row = modulation.back().span.begin;
    product.late_gate = modulation.back().mod + gate;
  }
  return product;
}

void Transformer::RunBlockFused(const Block& w, Sequence& sequence, Scratch& s, ThreadPool& pool) const {
  Tensor &img = sequence.img, &txt = sequence.txt;
  const int64_t txt_tokens = txt.dim(1), img_tokens = img.dim(1);
  const Modulation img_mod = ImgModulation(sequence, s), txt_mod = {{{0, txt_tokens}, s.txt_mod.data()}};

  // q, k and v of both streams.
  QuantizeModulated(img, img_mod, kAttentionPart, w.img.to_q, s.img_int8, pool);
  QuantizeModulated(txt, txt_mod, kAttentionPart, w.txt.to_q, s.txt_int8, pool);
  const Int8Product qkv[] = {w.img.to_q.ProductOf(s.img_int8, s.query.row(txt_tokens)),
                             w.img.to_k.ProductOf(s.img_int8, s.key.row(txt_tokens)),
                             w.img.to_v.ProductOf(s.img_int8, s.value.row(txt_tokens)),
                             w.txt.to_q.ProductOf(s.txt_int8, s.query.data()),
                             w.txt.to_k.ProductOf(s.txt_int8, s.key.data()),
                             w.txt.to_v.ProductOf(s.txt_int8, s.value.data())};
  Int8MatMul(qkv, pool);
  const auto norm_and_rope = [&](Tensor& x, int64_t first, int64_t count, const std::vector<float>& norm) {
    RmsNormRope({x.row(first), count, config_.inner_dim()}, norm.data(), kTransformerEps,
                {sequence.rope.cos.row(first), sequence.rope.sin.row(first), config_.attention_head_dim},
                pool);
  };
  norm_and_rope(s.query, txt_tokens, img_tokens, w.img.norm_q);
  norm_and_rope(s.key, txt_tokens, img_tokens, w.img.norm_k);
  norm_and_rope(s.query, 0, txt_tokens, w.txt.norm_q);
  norm_and_rope(s.key, 0, txt_tokens, w.txt.norm_k);

  Attend(txt_tokens + img_tokens, s, pool, {});

  QuantizeRows(s.attn_output.row(txt_tokens), img_tokens, w.img.to_out, s.img_int8, pool);
  QuantizeRows(s.attn_output.data(), txt_tokens, w.txt.to_out, s.txt_int8, pool);
  const Int8Product out[] = {Gated(w.img.to_out, s.img_int8, img_mod, kAttentionPart, img),
                             Gated(w.txt.to_out, s.txt_int8, txt_mod, kAttentionPart, txt)};
  Int8MatMul(out, pool);

  // MLP
  QuantizeModulated(img, img_mod, kMlpPart, w.img.mlp.proj, s.img_int8, pool);
  QuantizeModulated(txt, txt_mod, kMlpPart, w.txt.mlp.proj, s.txt_int8, pool);
  const Int8Product proj[] = {WithGelu(w.img.mlp.proj, s.img_int8, s.mlp_hidden.row(txt_tokens)),
                              WithGelu(w.txt.mlp.proj, s.txt_int8, s.mlp_hidden.data())};
  Int8MatMul(proj, pool);
  QuantizeRows(s.mlp_hidden.row(txt_tokens), img_tokens, w.img.mlp.out, s.img_int8, pool);
  QuantizeRows(s.mlp_hidden.data(), txt_tokens, w.txt.mlp.out, s.txt_int8, pool);
  const Int8Product mlp_out[] = {Gated(w.img.mlp.out, s.img_int8, img_mod, kMlpPart, img),
                                 Gated(w.txt.mlp.out, s.txt_int8, txt_mod, kMlpPart, txt)};
  Int8MatMul(mlp_out, pool);
}

}  // namespace qwen_image

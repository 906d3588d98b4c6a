// What the files of the transformer share among themselves.
#pragma once

#include <algorithm>

#include "kernels/int8/activations.h"
#include "model/transformer.h"

namespace qwen_image {

inline constexpr float kTransformerEps = 1e-6f;  // of every norm in this model

// The parts of a modulation: [shift, scale, gate] for the attention, the same for the MLP.
inline constexpr int64_t kAttentionPart = 0, kMlpPart = 3;
inline constexpr int64_t kShift = 0, kScale = 1, kGate = 2;

// A '.' begins a module of the block, whose weights and checkpoint have this name; a ':' begins a tensor that
// no module returns.
struct Transformer::StreamNames {
  const char *mod, *norm1, *modulated1, *gate1;
  const char *to_q, *to_k, *to_v, *norm_q, *norm_k, *query_rope, *key_rope;
  const char *to_out, *attn_residual;
  const char *norm2, *modulated2, *gate2, *mlp, *mlp_proj, *mlp_gelu, *mlp_out;
  const char* stream;

  static const StreamNames kImg, kTxt;
};

// Buffers that all blocks share. Joint ones hold the sequence [text, image].
struct Transformer::Scratch {
  Scratch(const TransformerConfig& config, int64_t img, int64_t txt)
      : img_tokens(img),
        txt_tokens(txt),
        img_mod({config.zero_cond_t ? 2 : 1, 6 * config.inner_dim()}),
        txt_mod({1, 6 * config.inner_dim()}),
        modulated({1, std::max(img_tokens, txt_tokens), config.inner_dim()}),
        branch({1, std::max(img_tokens, txt_tokens), config.inner_dim()}),
        mlp_hidden({1, txt_tokens + img_tokens, 4 * config.inner_dim()}),
        query({1, txt_tokens + img_tokens, config.inner_dim()}),
        key(query.shape()),
        value(query.shape()),
        attn_output(query.shape()) {}

  int64_t img_tokens, txt_tokens;
  Tensor img_mod, txt_mod;  // img_mod's second row is for t = 0
  Tensor token_gates;       // [tokens, inner_dim], if a listener was shown (and may have changed) every one
  Tensor modulated;         // the input of the attention or the MLP, one stream at a time
  Tensor branch;            // their output
  Tensor mlp_hidden;
  Tensor query, key, value, attn_output;
  Int8Activations img_int8, txt_int8;  // the input of a layer in 8 bits
};

}  // namespace qwen_image

// What the files of the transformer share among themselves.
#pragma once

#include <algorithm>

#include "families/qwen_image/transformer.h"
#include "kernels/int8/activations.h"

namespace qwen_image {

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

// One block of the transformer.
#pragma once

#include "families/qwen_image/transformer_weights.h"
#include "ops/interface.h"

namespace qwen_image {

// What goes through a block, for one prompt.
struct BlockState {
  Array img, txt;            // hidden states [1, tokens, inner_dim]
  int64_t drawn_tokens = 0;  // of img; the others are references
  Array img_mod,
      txt_mod;  // the block's modulations, [1, 6 · inner_dim]; with zero_cond_t img_mod has two rows
  Rope img_rope, txt_rope;
};

// Its scratch is for so many tokens; a state may have fewer of the text.
class BlockPass {
 public:
  BlockPass(Ops& ops, const TransformerConfig& config, int64_t txt_tokens, int64_t img_tokens);

  bool Fits(int64_t txt_tokens, int64_t img_tokens) const { return txt_tokens + img_tokens == query_.dim(1); }
  void Run(const TransformerWeights::Block& w, BlockState& state, const Tap& tap);

 private:
  using Stream = TransformerWeights::Stream;

  Modulation ModulationOf(const Stream& w, const BlockState& state, int64_t part) const;
  void Attend(const TransformerWeights::Block& w, BlockState& state, const Tap& tap);
  void RunMlp(const TransformerWeights::Block& w, BlockState& state, const Tap& tap);

  Ops& ops_;
  const TransformerConfig& config_;
  Array query_, key_, value_, attn_output_;  // [1, text + image tokens, inner_dim]
  Array mlp_hidden_;                         // [1, text + image tokens, 4 · inner_dim]
};

}  // namespace qwen_image

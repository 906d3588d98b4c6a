// One block of the transformer.
#pragma once

#include <optional>
#include <vector>

#include "families/qwen_image_21/transformer_weights.h"
#include "ops/interface.h"

namespace qwen_image::qwen_image_21 {

// The keys and values of the prefix in one block: they do not depend on the step.
struct PrefixCache {
  Array key, value;
};

// What goes through a block, for one prompt: the joint sequence or, where the prefix is kept, its target
// alone.
struct BlockState {
  Array hidden;      // [1, rows, inner_dim]
  Rope rope;         // of these rows
  Array modulation;  // [2, 4 · inner_dim]; the gates are behind their tanh
  int64_t prefix = 0;
  std::vector<AttentionSpan> spans;  // of the joint sequence; empty: the target sees everything

  bool joint() const { return !spans.empty(); }
};

class BlockPass {
 public:
  // Its scratch is for so many rows of a state, and so many tokens of the joint sequence; there may be fewer.
  BlockPass(Ops& ops, const TransformerConfig& config, int64_t rows, int64_t tokens);

  bool Fits(int64_t rows, int64_t tokens) const { return rows == query_.dim(1) && tokens == key_.dim(1); }
  // With `keep`, a joint sequence's prefix is kept so. Else `kept` is read where the target comes alone.
  void Run(const TransformerWeights::Block& w, BlockState& state, PrefixCache& kept,
           std::optional<Keeping> keep, const Tap& tap);

 private:
  Modulation ModulationOf(const BlockState& state, int64_t scale, int64_t gate) const;
  void Attend(const TransformerWeights::Block& w, BlockState& state, PrefixCache& kept,
              std::optional<Keeping> keep, const Tap& tap);
  void RunMlp(const TransformerWeights::Block& w, BlockState& state, const Tap& tap);

  Ops& ops_;
  const TransformerConfig& config_;
  const float eps_;
  Array query_, attn_output_;  // [1, rows, inner_dim]
  Array key_, value_;          // [1, tokens, inner_dim]
};

}  // namespace qwen_image::qwen_image_21

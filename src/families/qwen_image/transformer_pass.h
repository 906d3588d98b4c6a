// The transformer at work: for all steps of a run, whose sizes stay the same.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "families/qwen_image/transformer.h"
#include "families/qwen_image/transformer_block.h"

namespace qwen_image {

class TransformerPass {
 public:
  // Both outlive the pass.
  TransformerPass(const Transformer& model, const Compute& compute);

  // See Transformer::PredictVelocities. Several prompts go through each block one after the other, so that
  // its weights are read once.
  std::vector<Tensor> PredictVelocities(const Tensor& latents /*[1, tokens of all pictures, in_channels]*/,
                                        std::span<const Transformer::Prompt> prompts, float timestep,
                                        std::span<const TokenGrid> pictures);

 private:
  // What goes from block to block, for one prompt.
  struct Sequence {
    BlockState state;
    Array silu_temb;  // [1, inner_dim]; with zero_cond_t [2, inner_dim], for t = 0 too
    Tap tap;
  };

  Array EmbedTimestep(float timestep, const Tap& tap);
  Sequence Embed(const Tensor& latents, const Transformer::Prompt& prompt, float timestep,
                 std::span<const TokenGrid> pictures);
  void RunBlocks(std::span<Sequence> sequences);
  void RunBlocks(const Ops::Blocks& own, std::span<Sequence> sequences);
  void Modulate(const TransformerWeights::Block& block, Sequence& sequence);
  void RunCompiled(const TransformerWeights::Block& block, BlockState& state);
  Tensor ProjectOut(Sequence& sequence);

  const Transformer& model_;
  const TransformerConfig& config_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
  std::optional<BlockPass> block_pass_;
};

}  // namespace qwen_image

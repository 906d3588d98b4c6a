// The transformer at work: for all steps of a run, whose prompts and pictures stay the same.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "families/qwen_image_21/transformer.h"
#include "families/qwen_image_21/transformer_block.h"

namespace qwen_image::qwen_image_21 {

class TransformerPass {
 public:
  // What a prompt brings; the same for all steps.
  struct Prompt {
    const Tensor* embeds = nullptr;  // [1, tokens, context_in_dim]
    JointSequence sequence;
  };
  // `references`: [1, tokens of all, in_channels] or null. `keeping`: how the prefix's keys and values are
  // kept from the first step on; nothing: they are computed at every step. All that is referred to outlives
  // the pass.
  TransformerPass(const Transformer& model, std::vector<Prompt> prompts, const Tensor* references,
                  std::optional<Keeping> keeping, const Compute& compute);

  // For each prompt the velocity [1, target tokens, out_channels] at `timestep`, which runs from 1 (noise) to
  // 0. Several prompts go through each block one after the other, so that its weights are read once. A
  // listener is shown the joint sequence at every step, as the official model computes it without a cache.
  std::vector<Tensor> PredictVelocities(const Tensor& latents /*[1, target tokens, in_channels]*/,
                                        float timestep, std::span<const Tap> taps);

 private:
  // What lives as long as the run, for one prompt.
  struct Memory {
    Prompt prompt;
    Rope rope;                      // of the joint sequence
    std::vector<PrefixCache> kept;  // for each block of this machine; empty: not yet
  };
  // What goes from block to block.
  struct Flow {
    BlockState state;
    Array silu_temb;  // [2, inner_dim]
    Tap tap;
  };

  Array EmbedTimestep(float timestep, const Tap& tap);
  Array EmbedText(const Tensor& embeds, const Tap& tap);
  Array Join(const Memory& memory, const Tensor& latents, const Tap& tap);
  Flow Embed(const Memory& memory, const Tensor& latents, const Tap& tap);
  void Modulate(float timestep, Flow& flow);
  void RunBlocks(std::span<Flow> flows);
  void RunBlocks(const Ops::Blocks& own, std::span<Flow> flows, std::span<Memory> memories);
  // `place`: of the block among this machine's.
  void RunBlock(size_t block, size_t place, Flow& flow, Memory& memory);
  void RunCompiled(const TransformerWeights::Block& block, BlockState& state, const PrefixCache& kept);
  void PrepareScratch(std::span<const Flow> flows);
  Tensor ProjectOut(Flow& flow);

  const Transformer& model_;
  const TransformerConfig& config_;
  const Tensor* references_;
  const std::optional<Keeping> keeping_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
  std::vector<Memory> memories_;
  std::optional<BlockPass> block_pass_;
};

}  // namespace qwen_image::qwen_image_21

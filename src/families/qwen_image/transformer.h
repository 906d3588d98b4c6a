// The diffusion transformer (QwenImageTransformer2DModel): double-stream blocks in which the text's and the
// picture's tokens keep weights of their own and attend to each other. Names are diffusers' module names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "families/qwen_image/transformer_weights.h"
#include "model/layers.h"
#include "weights/lora.h"
#include "weights/store.h"

namespace qwen_image {

class Transformer {
 public:
  explicit Transformer(WeightStore store, LoraSet loras = {}, Precision precision = Precision::kExact);
  Transformer(Transformer&&) noexcept;
  ~Transformer();

  const TransformerConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }
  const LoraSet& loras() const { return loras_; }
  int64_t total_bytes() const { return store_.total_bytes() + loras_.total_bytes(); }  // of mapped files
  void UseZeroCondT() { config_.zero_cond_t = true; }  // for files that have lost its marker
  void ReleasePages() const;    // see MappedFile; also gives back the memory that steps share
  void ThrowIfDamaged() const;  // see WeightStore

  // A prompt to predict for, and who listens.
  struct Prompt {
    const Tensor& embeds;  // [1, text tokens, joint_attention_dim]
    Tap tap = {};
  };
  // For each prompt the velocity [1, tokens of the first picture, patch² · out_channels] at `timestep`, which
  // runs from 1 (noise) to 0. The first picture is the one being drawn; those behind it are references, whose
  // latents are clean. Several prompts go through each block one after the other, so that its weights are
  // read once.
  std::vector<Tensor> PredictVelocities(const Tensor& latents /*[1, tokens of all pictures, in_channels]*/,
                                        std::span<const Prompt> prompts, float timestep,
                                        std::span<const TokenGrid> pictures, const Compute& compute) const;

  // The same work on another device; see UseTwin.
  class Twin {
   public:
    virtual ~Twin() = default;
    virtual std::vector<Tensor> PredictVelocities(const Tensor& latents, std::span<const Prompt> prompts,
                                                  float timestep, std::span<const TokenGrid> pictures,
                                                  const Compute& compute) const = 0;
    virtual void Release() const = 0;  // the device's copy of the weights
  };
  // From now on all velocities come from the twin, which refers to this object: it stays where it is.
  void UseTwin(std::unique_ptr<const Twin> twin) { twin_ = std::move(twin); }
  const TransformerWeights& weights() const { return weights_; }

 private:
  using Stream = TransformerWeights::Stream;
  using StreamNames = TransformerWeights::StreamNames;
  using Block = TransformerWeights::Block;
  // A stream's share of the joint sequence [text, image].
  struct Span {
    int64_t begin = 0;
    int64_t count = 0;
  };
  // Tokens of a stream that share their modulation; mod: [shift, scale, gate] for the attention, then for the
  // MLP, [6 · inner_dim].
  struct ModulatedSpan {
    Span span;
    float* mod = nullptr;
  };
  using Modulation = std::vector<ModulatedSpan>;
  struct Scratch;
  // What goes from block to block, for one prompt.
  struct Sequence {
    Tensor img, txt;           // hidden states [1, tokens, inner_dim]
    int64_t drawn_tokens = 0;  // of img; the others are references
    Tensor silu_temb;          // [1, inner_dim]; with zero_cond_t [2, inner_dim], for t = 0 too
    RopeTable rope;
    Tap tap;
  };

  Tensor EmbedTimestep(float timestep, ThreadPool& pool, const Tap& tap) const;
  Sequence Embed(const Tensor& latents, const Prompt& prompt, float timestep,
                 std::span<const TokenGrid> pictures, ThreadPool& pool) const;
  Tensor ProjectOut(Sequence& sequence, ThreadPool& pool) const;

  Scratch& ScratchFor(int64_t img_tokens, int64_t txt_tokens) const;
  Modulation ImgModulation(const Sequence& sequence, Scratch& s) const;
  void RunBlock(const Block& w, Sequence& sequence, Scratch& s, ThreadPool& pool, const Tap& tap) const;
  void ProjectQkv(const Stream& w, const Tensor& hidden_states, const Modulation& modulation, Span span,
                  const RopeTable& rope, Scratch& s, ThreadPool& pool, const Tap& tap) const;
  void Attend(int64_t tokens, Scratch& s, ThreadPool& pool, const Tap& tap) const;
  void FinishAttention(const Stream& w, Tensor& hidden_states, const Modulation& modulation, Span span,
                       Scratch& s, ThreadPool& pool, const Tap& tap) const;
  void RunMlp(const Stream& w, Tensor& hidden_states, const Modulation& modulation, Scratch& s,
              ThreadPool& pool, const Tap& tap) const;
  void NormAndModulate(const Tensor& hidden_states, const Modulation& modulation, int64_t part, float* x,
                       const char* norm, const char* modulated, ThreadPool& pool, const Tap& tap) const;
  void TapGates(const Stream& w, const Modulation& modulation, int64_t part, Scratch& s,
                const Tap& tap) const;
  void AddGatedBranch(const Modulation& modulation, int64_t part, const Scratch& s, Tensor& hidden_states,
                      ThreadPool& pool) const;
  // The same block with its steps fused; transformer_fused.cc.
  static bool CanFuse(const Block& w);
  void QuantizeModulated(const Tensor& hidden_states, const Modulation& modulation, int64_t part,
                         const Linear& layer, Int8Activations& to, ThreadPool& pool) const;
  Int8Product Gated(const Linear& layer, const Int8Activations& x, const Modulation& modulation, int64_t part,
                    Tensor& hidden_states) const;
  void RunBlockFused(const Block& w, Sequence& sequence, Scratch& s, ThreadPool& pool) const;

  TransformerConfig config_;
  WeightStore store_;
  LoraSet loras_;
  TransformerWeights weights_;
  std::unique_ptr<const Twin> twin_;
  // Kept from step to step: clearing new memory takes as long as a layer.
  mutable std::unique_ptr<Scratch> scratch_;
};

}  // namespace qwen_image

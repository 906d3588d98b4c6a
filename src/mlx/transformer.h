// The diffusion transformer on MLX: the twin of model/transformer.h. Functions and checkpoints have the same
// names; what follows from sizes alone (tables, names, configs) is shared.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "families/qwen_image/transformer.h"
#include "mlx/layers.h"

namespace qwen_image::on_mlx {

// Whether a block's steps are compiled into fewer kernels. MLX compiles for a CPU by calling a C++ compiler
// when it runs, so that is for GPUs, and for the tests.
enum class Compile { kNo, kYes };

class Transformer : public qwen_image::Transformer::Twin {
 public:
  // `host` stays where it is.
  Transformer(const qwen_image::Transformer& host, const Placement& placement, Compile compile);
  ~Transformer() override;

  std::vector<Tensor> PredictVelocities(const Tensor& latents,
                                        std::span<const qwen_image::Transformer::Prompt> prompts,
                                        float timestep, std::span<const TokenGrid> pictures,
                                        const Compute& compute) const override;
  void Release() const override;
  size_t compiled_forms() const { return compiled_.size(); }  // blocks of one form share a function

 private:
  struct Stream;
  struct Block;
  struct Weights;
  // What goes from block to block, for one prompt.
  struct Sequence {
    array img, txt;  // hidden states [1, tokens, inner_dim], float32
    int64_t drawn_tokens = 0;
    array silu_temb;   // [1, inner_dim], float32; with zero_cond_t [2, inner_dim], for t = 0 too
    array temb_row;    // [img tokens]: which row of silu_temb modulates a token
    array cos, sin;    // [text + image tokens, head_dim / 2]
    ThreadPool* pool;  // for what is computed for listeners alone
    Tap tap;
  };
  // The shift, scale and gate of one half of a block: [1, inner_dim] each, or [1, tokens, inner_dim].
  struct Modulation {
    array shift, scale, gate;
  };
  struct Qkv {
    array q, k, v;  // [1, tokens, heads, head_dim]
  };

  Weights& LoadWeights() const;
  array EmbedTimestep(float timestep, const Tap& tap) const;
  Sequence Embed(const Tensor& latents, const qwen_image::Transformer::Prompt& prompt, float timestep,
                 std::span<const TokenGrid> pictures, ThreadPool& pool) const;
  Tensor ProjectOut(Sequence& sequence) const;

  Modulation ModulationOf(const Stream& w, const array& mod, int64_t part, const array& temb_row) const;
  array NormAndModulate(const array& hidden_states, const Modulation& modulation, const char* norm,
                        const char* modulated, const Tap& tap) const;
  void AddGated(const array& branch, Modulation& modulation, const char* name, array& hidden_states,
                const Tap& tap) const;
  Qkv ProjectQkv(const Stream& w, const array& hidden_states, const Modulation& modulation, const array& cos,
                 const array& sin, const Tap& tap) const;
  array Attend(const Qkv& txt, const Qkv& img, ThreadPool* pool, const Tap& tap) const;
  void FinishAttention(const Stream& w, const array& attn_output, Modulation& modulation,
                       array& hidden_states, const Tap& tap) const;
  void RunMlp(const Stream& w, Modulation& modulation, array& hidden_states, const Tap& tap) const;
  void RunBlock(const Block& w, Sequence& sequence, const Tap& tap) const;
  void RunCompiled(const Block& w, Sequence& sequence) const;

  const qwen_image::Transformer& host_;
  const TransformerConfig& config_;
  const Placement placement_;
  const Compile compile_;
  // Copied when first used; gone after Release().
  mutable std::unique_ptr<Weights> weights_;
  using Compiled = std::function<std::vector<array>(const std::vector<array>&)>;
  mutable std::map<std::string, Compiled> compiled_;  // by the form of a block
};

}  // namespace qwen_image::on_mlx

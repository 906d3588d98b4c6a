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
#include "lora/set.h"
#include "model/token_grid.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image {

class TransformerPass;

class Transformer {
 public:
  explicit Transformer(WeightStore store, lora::Set loras = {}, Precision precision = Precision::kExact);
  Transformer(Transformer&&) noexcept;
  ~Transformer();

  const TransformerConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }
  const lora::Set& loras() const { return loras_; }
  const TransformerWeights& weights() const { return weights_; }
  int64_t total_bytes() const { return store_.total_bytes() + loras_.total_bytes(); }  // of mapped files
  void UseZeroCondT() { config_.zero_cond_t = true; }  // for files that have lost its marker
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;    // see MappedFile; also the device's copies
  void ThrowIfDamaged() const;  // see WeightStore

  // A prompt to predict for, and its listener.
  struct Prompt {
    const Tensor& embeds;  // [1, text tokens, joint_attention_dim]
    Tap tap = {};
  };
  // For each prompt the velocity [1, tokens of the first picture, patch² · out_channels] at `timestep`, which
  // runs from 1 (noise) to 0. The first picture is the one being drawn; those behind it are references, whose
  // latents are clean. A run of several steps keeps one TransformerPass instead.
  std::vector<Tensor> PredictVelocities(const Tensor& latents /*[1, tokens of all pictures, in_channels]*/,
                                        std::span<const Prompt> prompts, float timestep,
                                        std::span<const TokenGrid> pictures, const Compute& compute) const;

 private:
  TransformerConfig config_;
  WeightStore store_;
  lora::Set loras_;
  TransformerWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image

// Latents + conditions → velocity, by the transformer of Qwen-Image-2.1.
#pragma once

#include <functional>

#include "core/memory.h"
#include "families/model.h"
#include "families/qwen_image_21/transformer.h"

namespace qwen_image::qwen_image_21 {

// Bytes of the prefix's keys and values, for each of its tokens.
int64_t PrefixCacheBytes(const TransformerConfig& config, Keeping keeping);
// The memory that the steps work in beside the weights and the prefix cache, for one prompt.
int64_t TransformerWorkspace(const TransformerConfig& config, int64_t prefix, int64_t target);

class QwenImage21Denoiser final : public Denoiser {
 public:
  QwenImage21Denoiser(WeightStore store, lora::Set loras, Precision precision)
      : precision_(precision), transformer_(std::move(store), std::move(loras), precision) {}

  Transformer& transformer() { return transformer_; }
  const Transformer& transformer() const { return transformer_; }
  // The token that stands for pictures in prompts.
  void UseImageToken(int64_t id) { image_token_ = id; }
  // Who tells how much memory there is: tests have their own.
  void UseMemory(std::function<int64_t()> available) { available_ = std::move(available); }

  std::unique_ptr<DenoiserPass> Start(Conditions conditions, const Compute& compute) const override;
  void Guide(const Tensor& negative, float scale, Tensor& positive) const override;
  Linear TypicalLayer() const override;
  Work WorkOf(TokenGrid grid, int64_t prompt_tokens) const override;

 private:
  std::optional<Keeping> ChooseKeeping(int64_t prefix, int64_t workspace, const Conditions& conditions) const;

  Precision precision_;
  Transformer transformer_;
  int64_t image_token_ = -1;
  std::function<int64_t()> available_ = [] { return AvailableMemory(); };
};

}  // namespace qwen_image::qwen_image_21

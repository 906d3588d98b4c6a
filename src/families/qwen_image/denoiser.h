// Latents + conditions → velocity, by Qwen-Image's transformer.
#pragma once

#include "families/model.h"
#include "families/qwen_image/transformer.h"

namespace qwen_image {

class QwenImageDenoiser final : public Denoiser {
 public:
  QwenImageDenoiser(WeightStore store, lora::Set loras, Precision precision)
      : precision_(precision), transformer_(std::move(store), std::move(loras), precision) {}

  Transformer& transformer() { return transformer_; }
  const Transformer& transformer() const { return transformer_; }

  std::unique_ptr<DenoiserPass> Start(Conditions conditions, const Compute& compute) const override;
  void Guide(const Tensor& negative, float scale, Tensor& positive) const override;
  Linear TypicalLayer() const override;
  Work WorkOf(TokenGrid grid, int64_t prompt_tokens) const override;

 private:
  Precision precision_;
  Transformer transformer_;
};

}  // namespace qwen_image

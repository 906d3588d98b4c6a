#include "families/qwen_image/transformer.h"

#include "families/qwen_image/transformer_pass.h"

namespace qwen_image {

Transformer::Transformer(WeightStore store, lora::Set loras, Precision precision)
    : config_(ReadTransformerConfig(store)),
      store_(std::move(store)),
      loras_(std::move(loras)),
      weights_(config_, store_, loras_, precision) {}

Transformer::Transformer(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

void Transformer::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
  loras_.ReleasePages();
}

void Transformer::ThrowIfDamaged() const {
  store_.ThrowIfDamaged();
  loras_.ThrowIfDamaged();
}

std::vector<Tensor> Transformer::PredictVelocities(const Tensor& latents, std::span<const Prompt> prompts,
                                                   float timestep, std::span<const TokenGrid> pictures,
                                                   const Compute& compute) const {
  return TransformerPass(*this, compute).PredictVelocities(latents, prompts, timestep, pictures);
}

}  // namespace qwen_image

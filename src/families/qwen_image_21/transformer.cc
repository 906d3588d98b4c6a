#include "families/qwen_image_21/transformer.h"

namespace qwen_image::qwen_image_21 {

Transformer::Transformer(WeightStore store, lora::Set loras, Precision precision)
    : config_(ReadTransformerConfig(store)),
      store_(std::move(store)),
      loras_(std::move(loras)),
      weights_(config_, store_, loras_, precision) {}

void Transformer::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
  loras_.ReleasePages();
}

void Transformer::ThrowIfDamaged() const {
  store_.ThrowIfDamaged();
  loras_.ThrowIfDamaged();
}

}  // namespace qwen_image::qwen_image_21

// The diffusion transformer (QwenImage21Transformer2DModel): one stream of tokens, of the text, of reference
// pictures and of the picture that is drawn. Names are diffusers' module names.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "families/qwen_image_21/transformer_weights.h"
#include "lora/set.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image::qwen_image_21 {

class Transformer {
 public:
  explicit Transformer(WeightStore store, lora::Set loras = {}, Precision precision = Precision::kExact);

  const TransformerConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }
  const lora::Set& loras() const { return loras_; }
  const TransformerWeights& weights() const { return weights_; }
  int64_t total_bytes() const { return store_.total_bytes() + loras_.total_bytes(); }  // of mapped files
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;    // see MappedFile; also the device's copies
  void ThrowIfDamaged() const;  // see WeightStore

 private:
  TransformerConfig config_;
  WeightStore store_;
  lora::Set loras_;
  TransformerWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image::qwen_image_21

// The text encoder: the language model of Qwen2.5-VL, of which the pipeline takes the hidden states after the
// final norm. Names are transformers' module names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "families/qwen_decoder.h"
#include "model/prompt_images.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image {

struct TextEncoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  std::vector<int64_t> mrope_section;  // how the axes of a position (t, h, w, t, …) share the frequencies

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  DecoderShape decoder() const {
    return {.hidden_size = hidden_size,
            .intermediate_size = intermediate_size,
            .heads = num_attention_heads,
            .kv_heads = num_key_value_heads,
            .head_dim = head_dim(),
            .eps = rms_norm_eps};
  }
};

// From config.json in both of its shapes, flat or with a nested text_config; without one, from GGUF's
// metadata and the shapes of the tensors. Throws Error kBadInput.
TextEncoderConfig ReadTextEncoderConfig(const WeightStore& store);

// The weights where they lie, under transformers' names.
struct TextEncoderWeights {
  // Throws Error kBadInput that lists all that is missing or does not fit.
  TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store, Precision precision);

  WeightMatrix embed_tokens;  // [vocab_size, hidden_size]
  std::vector<DecoderLayer> layers;
  std::vector<float> norm;

  std::vector<const Linear*> AllLayers() const { return LayersOf(layers); }
};

class TextEncoder {
 public:
  explicit TextEncoder(WeightStore store, Precision precision = Precision::kExact);

  const TextEncoderConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }

  // Hidden states after the final norm, [1, tokens, hidden_size].
  Tensor Encode(const std::vector<int64_t>& input_ids, const Compute& compute, const Tap& tap = {}) const {
    return Encode(input_ids, nullptr, compute, tap);
  }
  // The same with pictures. Throws Error kBadInput if they do not fit the ids or this model.
  Tensor Encode(const std::vector<int64_t>& input_ids, const PromptImages& images, const Compute& compute,
                const Tap& tap = {}) const {
    return Encode(input_ids, &images, compute, tap);
  }

  const TextEncoderWeights& weights() const { return weights_; }
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 private:
  Tensor Encode(const std::vector<int64_t>& input_ids, const PromptImages* images, const Compute& compute,
                const Tap& tap) const;
  RopeTables MakeRope(const std::vector<int64_t>& position_ids /*[3, tokens]*/) const;
  void CheckMropeSection() const;  // throws Error kBadInput; only pictures need it

  TextEncoderConfig config_;
  WeightStore store_;
  TextEncoderWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image

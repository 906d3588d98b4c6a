// The text encoder: the language model of Qwen3-VL, of which the pipeline takes the hidden states after the
// last layer, before the final norm. Names are transformers' module names.
#pragma once

#include <array>
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

namespace qwen_image::qwen_image_21 {

struct TextEncoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 5e6;
  std::array<int64_t, 3> mrope_section = {};  // how many frequencies follow time, height and width

  DecoderShape decoder() const {
    return {.hidden_size = hidden_size,
            .intermediate_size = intermediate_size,
            .heads = num_attention_heads,
            .kv_heads = num_key_value_heads,
            .head_dim = head_dim,
            .eps = rms_norm_eps};
  }
};

// From config.json, with a nested text_config or flat; without one, from GGUF's metadata and the shapes of
// the tensors. Throws Error kBadInput.
TextEncoderConfig ReadTextEncoderConfig(const WeightStore& store);

// Interleaved M-RoPE: frequencies follow time, height, width, time, … in turn, until an axis has its share;
// time has the rest. Throws Error kUsage if a position is too large for an exact float.
RopeTables MakeRope(const TextEncoderConfig& config, std::span<const int64_t> position_ids /*[3, tokens]*/);

// The weights where they lie, under transformers' names.
struct TextEncoderWeights {
  // Throws Error kBadInput that lists all that is missing or does not fit.
  TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store, Precision precision);

  WeightMatrix embed_tokens;  // [vocab_size, hidden_size]
  std::vector<DecoderLayer> layers;

  std::vector<const Linear*> AllLayers() const { return LayersOf(layers); }
};

class TextEncoder {
 public:
  explicit TextEncoder(WeightStore store, Precision precision = Precision::kExact);

  const TextEncoderConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }

  // Hidden states after the last layer, [1, tokens, hidden_size].
  Tensor Encode(const std::vector<int64_t>& input_ids, const Compute& compute, const Tap& tap = {}) const {
    return Encode(input_ids, nullptr, {}, compute, tap);
  }
  // The same with pictures. `deepstack`: features [tokens of all pictures, hidden_size] that are added to the
  // hidden states of image tokens, the first after layer 0, the second after layer 1, …. Throws Error
  // kBadInput if they do not fit the ids or this model.
  Tensor Encode(const std::vector<int64_t>& input_ids, const PromptImages& images,
                std::span<const Tensor> deepstack, const Compute& compute, const Tap& tap = {}) const {
    return Encode(input_ids, &images, deepstack, compute, tap);
  }

  const TextEncoderWeights& weights() const { return weights_; }
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 private:
  Tensor Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                std::span<const Tensor> deepstack, const Compute& compute, const Tap& tap) const;
  void CheckDeepstack(std::span<const Tensor> deepstack, const PromptImages& images) const;

  TextEncoderConfig config_;
  WeightStore store_;
  TextEncoderWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image::qwen_image_21

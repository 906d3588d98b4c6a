// The decoder layers of Qwen's language models, as Qwen2.5-VL and Qwen3-VL have them. The first has biases at
// q, k and v; the second has norms of q and k instead. Names are transformers' module names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "ops/interface.h"
#include "weights/binder.h"

namespace qwen_image {

struct DecoderShape {
  int64_t hidden_size = 0, intermediate_size = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double eps = 1e-6;  // of all norms

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

enum class DecoderKind { kQwen25, kQwen3 };

// The weights of a layer where they lie.
struct DecoderLayer {
  struct SelfAttention {
    Linear q_proj, k_proj, v_proj, o_proj;
    std::vector<float> q_norm, k_norm;  // [head_dim]; empty: there are none
  };
  struct Mlp {
    Linear gate_proj, up_proj, down_proj;
  };
  std::vector<float> input_layernorm;
  SelfAttention self_attn;
  std::vector<float> post_attention_layernorm;
  Mlp mlp;
};

// `prefix`: "model.language_model.layers.3."
DecoderLayer BindDecoderLayer(WeightBinder& binder, const std::string& prefix, const DecoderShape& shape,
                              DecoderKind kind, Precision precision);
std::vector<const Linear*> LayersOf(const std::vector<DecoderLayer>& layers);

struct RopeTables {
  Tensor cos, sin;  // [tokens, head_dim / 2]
};

// One prompt's way through the layers, in memory of its own.
class DecoderPass {
 public:
  DecoderPass(const DecoderShape& shape, Ops& ops, const RopeTables& rope);

  // hidden_states ← the layer's output, [1, tokens, hidden_size].
  void Run(const DecoderLayer& layer, Array& hidden_states, const Tap& tap);

 private:
  void RunSelfAttention(const DecoderLayer& layer, Array& hidden_states, const Tap& tap);
  void Rotate(const DecoderLayer::SelfAttention& w, const Tap& tap);
  void RunMlp(const DecoderLayer& layer, Array& hidden_states, const Tap& tap);

  const DecoderShape shape_;
  const float eps_;
  Ops& ops_;
  Rope rope_;
  Joint q_, k_, v_, attended_;  // [1, tokens, (kv_)heads · head_dim]
  Array gate_, up_;             // [1, tokens, intermediate_size]
};

}  // namespace qwen_image

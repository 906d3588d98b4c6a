// The diffusion transformer's config, its table of weights, and what all devices compute from sizes alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "families/qwen_image_21/joint_sequence.h"
#include "lora/set.h"
#include "ops/linear.h"
#include "weights/store.h"

namespace qwen_image::qwen_image_21 {

struct TransformerConfig {
  int64_t num_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t attention_head_dim = 128;
  int64_t in_channels = 64;
  int64_t out_channels = 64;
  int64_t context_in_dim = 4096;
  int64_t mlp_ratio = 3;
  std::array<int64_t, 3> axes_dims_rope = {16, 56, 56};  // frame, height, width
  double eps = 1e-6;                                     // of every norm in this model

  int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
  int64_t mlp_dim() const { return mlp_ratio * inner_dim(); }
};

// From config.json; without one, from the shapes of the tensors. Throws Error kBadInput.
TransformerConfig ReadTransformerConfig(const WeightStore& store);
Json TransformerConfigJson(const TransformerConfig& config);  // as diffusers writes it

// The weights where they lie, under diffusers' names. No layer has a bias.
struct TransformerWeights {
  struct Block {
    Linear to_q, to_k, to_v, to_out;
    std::vector<float> norm_q, norm_k;  // [head_dim]
    Linear gate_layer, proj, out;       // img_mlp
  };

  // Throws Error kBadInput that lists all that is missing or does not fit.
  TransformerWeights(const TransformerConfig& config, WeightStore& store, lora::Set& loras,
                     Precision precision);

  Linear img_in;
  std::vector<float> text_norm;  // [context_in_dim]; files hold it without the 1 that is added here
  Linear txt_in_layer, txt_out_layer;
  Linear time_linear_1, time_linear_2;  // time_text_embed.timestep_embedder
  Linear modulation;                    // temb → [scale, gate] for the attention, then for the MLP
  std::vector<Block> transformer_blocks;
  Linear norm_out_linear;  // temb → scale
  Linear proj_out;

  std::vector<const Linear*> AllLayers() const;
};

std::vector<const Linear*> LayersOf(const TransformerWeights::Block& block);

// The parts of a modulation.
inline constexpr int64_t kModulationParts = 4;
inline constexpr int64_t kAttentionScale = 0, kAttentionGate = 1, kMlpScale = 2, kMlpGate = 3;

// The rows of everything that follows from the timestep: the target's, and that of t = 0, which the text and
// the references have.
inline constexpr int64_t kTargetRow = 0, kPrefixRow = 1;

struct RopeTable {
  Tensor cos, sin;  // [tokens of the joint sequence, head_dim / 2]
};
RopeTable MakeRope(const TransformerConfig& config, const JointSequence& sequence);

// The sinusoids of the timestep and of t = 0, [2, channels].
Tensor TimeProjection(float timestep);

}  // namespace qwen_image::qwen_image_21

// The diffusion transformer's config, its table of weights, and what all devices compute from sizes alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "lora/set.h"
#include "model/token_grid.h"
#include "ops/linear.h"
#include "weights/store.h"

namespace qwen_image {

struct TransformerConfig {
  int64_t num_layers = 60;
  int64_t num_attention_heads = 24;
  int64_t attention_head_dim = 128;
  int64_t in_channels = 64;
  int64_t out_channels = 16;
  int64_t patch_size = 2;
  int64_t joint_attention_dim = 3584;
  std::array<int64_t, 3> axes_dims_rope = {16, 56, 56};  // frame, height, width
  bool zero_cond_t = false;  // reference pictures are modulated for t = 0 (Edit-2511)

  int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
};

// From config.json; without one, from the shapes of the tensors. Throws Error kBadInput.
TransformerConfig ReadTransformerConfig(const WeightStore& store);

// The weights where they lie, under diffusers' names.
struct TransformerWeights {
  struct Mlp {
    Linear proj;  // net.0.proj, followed by gelu
    Linear out;   // net.2
  };
  // What the text's and the picture's weights and checkpoints are called. A '.' begins a module of the block,
  // whose weights and checkpoint have this name; a ':' begins a tensor that no module returns.
  struct StreamNames {
    const char *mod, *norm1, *modulated1, *gate1;
    const char *to_q, *to_k, *to_v, *norm_q, *norm_k, *query_rope, *key_rope;
    const char *to_out, *attn_residual;
    const char *norm2, *modulated2, *gate2, *mlp, *mlp_proj, *mlp_gelu, *mlp_out;
    const char* stream;

    static const StreamNames kImg, kTxt;
  };
  // One stream (text or picture) of a block.
  struct Stream {
    const StreamNames* names = nullptr;
    Linear mod;  // temb → [shift, scale, gate] for the attention, then for the MLP
    Linear to_q, to_k, to_v, to_out;
    std::vector<float> norm_q, norm_k;  // [head_dim]
    Mlp mlp;
  };
  struct Block {
    Stream img, txt;
  };

  // Throws Error kBadInput that lists all that is missing or does not fit.
  TransformerWeights(const TransformerConfig& config, WeightStore& store, lora::Set& loras,
                     Precision precision);

  Linear img_in, txt_in;
  std::vector<float> txt_norm;
  Linear time_linear_1, time_linear_2;  // time_text_embed.timestep_embedder
  std::vector<Block> transformer_blocks;
  Linear norm_out_linear, proj_out;

  std::vector<const Linear*> AllLayers() const;
};

std::vector<const Linear*> LayersOf(const TransformerWeights::Block& block);  // that a block runs through

inline constexpr float kTransformerEps = 1e-6f;  // of every norm in this model

// The parts of a modulation: [shift, scale, gate] for the attention, the same for the MLP.
inline constexpr int64_t kAttentionPart = 0, kMlpPart = 3;
inline constexpr int64_t kShift = 0, kScale = 1, kGate = 2;

struct RopeTable {
  Tensor cos, sin;  // [text + image tokens, head_dim / 2]
};
RopeTable MakeRope(const TransformerConfig& config, int64_t text_tokens, std::span<const TokenGrid> pictures);

// The sinusoids of the timestep, [1, channels]; with zero_cond_t [2, channels]: the second row is for t = 0,
// which references have.
Tensor TimeProjection(const TransformerConfig& config, float timestep);

}  // namespace qwen_image

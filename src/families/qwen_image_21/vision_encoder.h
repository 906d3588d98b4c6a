// The vision encoder: Qwen3VLVisionModel of transformers, the vision tower of the text encoder. It turns
// pictures into embeddings that take the place of image tokens in a prompt, and into features that are added
// to the hidden states of these tokens in the text encoder's first layers. Names are transformers' module
// names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "model/image_grid.h"
#include "model/patches.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image::qwen_image_21 {

struct VisionEncoderConfig {
  int64_t depth = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 16;
  int64_t in_channels = 3;
  int64_t patch_size = 16;
  int64_t temporal_patch_size = 2;
  int64_t spatial_merge_size = 2;
  int64_t out_hidden_size = 0;
  int64_t num_position_embeddings = 0;  // a square
  double rope_theta = 1e4;
  std::vector<int64_t> deepstack_visual_indexes;  // blocks whose outputs are features too

  int64_t head_dim() const { return hidden_size / num_heads; }
  PatchShape patch() const { return {in_channels, temporal_patch_size, patch_size}; }
  int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  int64_t merged_width() const { return hidden_size * merge_unit(); }
  int64_t position_side() const;  // of the square
};

// From vision_config in config.json; what is not there from the tensors' shapes, from the metadata of
// llama.cpp's mmproj file, or as in Qwen3-VL-8B. Throws Error kBadInput.
VisionEncoderConfig ReadVisionEncoderConfig(const WeightStore& store);

inline constexpr float kVisionEncoderEps = 1e-6f;  // of every norm, whatever the config says

// The weights where they lie, under transformers' names.
struct VisionEncoderWeights {
  struct LayerNorm {
    std::vector<float> weight, bias;
  };
  struct SelfAttention {
    Linear qkv, proj;
  };
  struct Mlp {
    Linear linear_fc1, linear_fc2;
  };
  struct Block {
    LayerNorm norm1;
    SelfAttention attn;
    LayerNorm norm2;
    Mlp mlp;
  };
  struct Merger {
    LayerNorm
        norm;  // [hidden_size], before patches are merged; in deepstack_merger_list [merged_width], after
    Linear linear_fc1, linear_fc2;
  };

  // Throws Error kBadInput that lists all that is missing or does not fit.
  VisionEncoderWeights(const VisionEncoderConfig& config, WeightStore& store, Precision precision);

  Linear patch_embed;            // [hidden_size, values of a patch]
  std::vector<float> pos_embed;  // [num_position_embeddings, hidden_size]
  std::vector<Block> blocks;
  Merger merger;
  std::vector<Merger> deepstack_merger_list;

  std::vector<const Linear*> AllLayers() const;  // but patch_embed, which is no layer in any file

 private:
  std::vector<float> patch_embed_proj_;  // what patch_embed points to
};

class VisionEncoder {
 public:
  // `store` is one of Component::kVisionEncoder: of a text encoder with a vision tower, or of a tower alone.
  explicit VisionEncoder(WeightStore store, Precision precision = Precision::kExact);

  const VisionEncoderConfig& config() const { return config_; }
  const WeightStore& store() const { return store_; }

  // [tokens, out_hidden_size] each, of all pictures, one after the other, in raster order: the embeddings,
  // then the features for the first layers of the text encoder. Throws Error kUsage if a grid does not split
  // into merged tokens or is not what pixel_values holds.
  std::vector<Tensor> Encode(const Tensor& pixel_values /*[patches, values of a patch]*/,
                             std::span<const ImageGrid> grids, const Compute& compute,
                             const Tap& tap = {}) const;

  const VisionEncoderWeights& weights() const { return weights_; }
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 private:
  VisionEncoderConfig config_;
  WeightStore store_;
  VisionEncoderWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image::qwen_image_21

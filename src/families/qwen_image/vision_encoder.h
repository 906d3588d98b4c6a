// The vision encoder: Qwen2_5_VisionTransformer of transformers, the vision tower of the text encoder. It
// turns pictures into embeddings that take the place of image tokens in a prompt. Names are transformers'
// module names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "model/image_grid.h"
#include "model/patches.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image {

struct VisionEncoderConfig {
  int64_t depth = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 16;
  int64_t in_channels = 3;
  int64_t patch_size = 14;
  int64_t temporal_patch_size = 2;
  int64_t spatial_merge_size = 2;
  int64_t window_size = 112;  // pixels
  int64_t out_hidden_size = 0;
  double rope_theta = 1e4;
  std::vector<int64_t> fullatt_block_indexes;  // blocks that look beyond their window

  int64_t head_dim() const { return hidden_size / num_heads; }
  PatchShape patch() const { return {in_channels, temporal_patch_size, patch_size}; }
  int64_t patch_values() const { return patch().values(); }
  int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
};

// From vision_config in config.json; what is not there from the tensors' shapes, from the metadata of
// llama.cpp's mmproj file, or as in Qwen2.5-VL. Throws Error kBadInput.
VisionEncoderConfig ReadVisionEncoderConfig(const WeightStore& store);

inline constexpr float kVisionEncoderEps = 1e-6f;  // of every norm, whatever the config says

// The weights where they lie, under transformers' names.
struct VisionEncoderWeights {
  struct SelfAttention {
    std::vector<Linear> qkv;  // one; or three, where a file splits it
    Linear proj;
  };
  struct Mlp {
    Linear gate_proj, up_proj, down_proj;
  };
  struct Block {
    std::vector<float> norm1;
    SelfAttention attn;
    std::vector<float> norm2;
    Mlp mlp;
    bool full_attention;
  };
  struct Merger {
    std::vector<float> ln_q;
    Linear mlp_0, mlp_2;
  };

  // Throws Error kBadInput that lists all that is missing or does not fit.
  VisionEncoderWeights(const VisionEncoderConfig& config, WeightStore& store, Precision precision);

  Linear patch_embed;  // [hidden_size, patch_values]
  std::vector<Block> blocks;
  Merger merger;

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

  // The embeddings of all pictures, one after the other, each in raster order: [tokens, out_hidden_size].
  // Throws Error kUsage if a grid does not split into merged tokens or is not what pixel_values holds.
  Tensor Encode(const Tensor& pixel_values /*[patches, patch_values]*/, std::span<const ImageGrid> grids,
                const Compute& compute, const Tap& tap = {}) const;

  // Patches that look at each other are neighbours: pictures and their frames one after the other, in them
  // windows, in those merged tokens row by row, each with its merge_unit patches.
  struct Layout {
    std::vector<int64_t> order;                    // [tokens] which token of the input is at this place
    std::vector<int64_t> window_ends, frame_ends;  // in patches; windows at the right and below are smaller
    Tensor cos, sin;                               // [patches, head_dim / 2]
  };
  const VisionEncoderWeights& weights() const { return weights_; }
  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  Backend& backend() const { return *backend_; }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 private:
  Layout MakeLayout(std::span<const ImageGrid> grids) const;

  VisionEncoderConfig config_;
  WeightStore store_;
  VisionEncoderWeights weights_;
  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image

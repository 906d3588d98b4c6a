// Keys and values of all heads in 8 bits, in the form in which Int8Kernel::dot reads panels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "kernels/tasks.h"

namespace qwen_image {

// Keys that are processed together. In a block the values of one dimension of the head share a scale, and so
// do the weights of one query: of 256 keys the largest weight takes so many bits from the others that
// pictures of the embedded model are 5 dB farther from the exact ones, for a fifth more speed.
inline constexpr int64_t kKeyBlock = 64;

class PackedAttention {
 public:
  // kInt8PanelCols keys, all numbers of a head.
  struct KeyPanel {
    uint8_t* q;     // [head_dim / 4][kInt8PanelCols][4]
    float* scales;  // [groups][kInt8PanelCols]
  };
  // A block of keys, kInt8PanelCols numbers of a head: v = scale · q + least.
  struct ValuePanel {
    uint8_t* q;  // [keys / 4][kInt8PanelCols][4]
    float* scales;
    float* least;
    int32_t* middle;  // 128 · Σ q over the keys
  };

  PackedAttention(int64_t keys, const AttentionShape& shape, const Int8Kernel& kernel);

  const AttentionShape& shape() const { return shape_; }
  const Int8Kernel& kernel() const { return kernel_; }
  bool signed_bytes() const { return kernel_.weights == Int8Weights::kSigned; }
  int64_t keys() const { return keys_; }
  int64_t blocks() const { return CeilDiv(keys_, kKeyBlock); }
  int64_t KeysIn(int64_t block) const { return std::min(kKeyBlock, keys_ - block * kKeyBlock); }
  // Rounded up to whole panels. What is no key has the scale 0.
  int64_t PaddedKeysIn(int64_t block) const { return RoundUp(KeysIn(block), kInt8PanelCols); }
  int64_t key_panels() const { return CeilDiv(keys_, kInt8PanelCols); }
  int64_t dim_panels() const { return shape_.head_dim / kInt8PanelCols; }
  int key_group() const { return key_group_; }  // numbers of a key that share a scale
  int64_t key_groups() const { return shape_.head_dim / key_group_; }

  KeyPanel Keys(int64_t kv_head, int64_t panel) const;
  ValuePanel Values(int64_t kv_head, int64_t block, int64_t dim_panel) const;
  int64_t key_panel_bytes() const { return shape_.head_dim * kInt8PanelCols; }
  int64_t value_panel_bytes(int64_t block) const { return PaddedKeysIn(block) * kInt8PanelCols; }

 private:
  int64_t padded_keys() const { return key_panels() * kInt8PanelCols; }

  const AttentionShape shape_;
  const Int8Kernel& kernel_;
  const int64_t keys_;
  const int key_group_;
  SharedScratch memory_;
  uint8_t *key_q_, *value_q_;
  float *key_scales_, *value_scales_, *value_least_;
  int32_t* value_middle_;
};

}  // namespace qwen_image

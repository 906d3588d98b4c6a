// Keys and values of all heads in 8 bits, in panels as Int8Kernel::multiply reads them. Of one plane: for
// kernels that want two, attention in 8 bits is not faster than in fp32.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/threads.h"
#include "core/view.h"
#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "kernels/tasks.h"

namespace qwen_image {

// Keys that are processed together: their logits for a tile of queries stay in L1.
inline constexpr int64_t kKeyBlock = 256;

// Neighbouring keys whose values share a scale in each dimension of the head, and whose weights share one in
// each query: of 256 keys the largest weight takes so many bits from the others that pictures of the embedded
// model are 5 dB farther from the exact ones.
inline constexpr int64_t kKeyGroup = 64;

class PackedAttention {
 public:
  // k and v are [keys, kv_heads · head_dim].
  PackedAttention(ConstView k, ConstView v, const AttentionShape& shape, const Int8Kernel& kernel,
                  ThreadPool& pool);

  const AttentionShape& shape() const { return shape_; }
  const Int8Kernel& kernel() const { return kernel_; }
  int64_t keys() const { return keys_; }
  int64_t blocks() const { return CeilDiv(keys_, kKeyBlock); }
  int64_t KeysIn(int64_t block) const { return std::min(kKeyBlock, keys_ - block * kKeyBlock); }
  // Rounded up to a number of groups, of which the last may be a half or a quarter.
  int64_t PaddedKeysIn(int64_t block) const;
  int64_t dim_panels() const { return shape_.head_dim / kInt8PanelCols; }
  int dim_group() const { return dim_group_; }  // numbers of a key or a query that share a scale
  int64_t dim_groups() const { return shape_.head_dim / dim_group_; }

  // kInt8PanelCols keys of a block, all numbers of a head. Their products with queries are logits in units of
  // log2; those of what is no key are 0.
  Int8Panel Keys(int64_t kv_head, int64_t block, int64_t panel) const;

  // kInt8PanelCols numbers of a head, the keys of a block from a group on. They are made for rows of weights
  // from which 128 was taken away; the rows' sums are those of the weights themselves.
  Int8Panel Values(int64_t kv_head, int64_t block, int64_t dim_panel, int64_t first_group) const;

 private:
  struct PanelMemory {
    uint8_t* q;
    float* scales;
    float* biases;
    int32_t* starts;  // of values alone
  };
  PanelMemory KeyMemory(int64_t kv_head, int64_t block, int64_t panel) const;
  PanelMemory ValueMemory(int64_t kv_head, int64_t block, int64_t dim_panel) const;

  // Of one head, into a panel. k and v are all tokens.
  void PackKeys(ConstView k, const float* mean, int64_t first, const PanelMemory& to) const;
  void PackValues(ConstView v, int64_t block, const PanelMemory& to) const;

  int64_t padded_keys() const { return (blocks() - 1) * kKeyBlock + PaddedKeysIn(blocks() - 1); }
  bool signed_bytes() const { return kernel_.weights == Int8Weights::kSigned; }

  const AttentionShape shape_;
  const Int8Kernel& kernel_;
  const int64_t keys_;
  const int dim_group_;
  SharedScratch memory_;
  uint8_t *key_q_, *value_q_;
  float *key_scales_, *key_biases_, *value_scales_, *value_biases_;
  int32_t* value_starts_;
};

}  // namespace qwen_image

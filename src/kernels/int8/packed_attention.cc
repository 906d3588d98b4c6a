#include "kernels/int8/packed_attention.h"

namespace qwen_image {

PackedAttention::PackedAttention(int64_t keys, const AttentionShape& shape, const Int8Kernel& kernel)
    : shape_(shape),
      kernel_(kernel),
      keys_(keys),
      key_group_(shape.head_dim % 64 == 0   ? 64
                 : shape.head_dim % 32 == 0 ? 32
                                            : 16),
      memory_(shape.kv_heads *
              (padded_keys() * (shape.head_dim / 2 + key_groups()) + 3 * blocks() * shape.head_dim)) {
  float* next = memory_.data();
  const auto take = [&](int64_t floats) {
    float* const part = next;
    next += shape_.kv_heads * floats;
    return part;
  };
  key_q_ = reinterpret_cast<uint8_t*>(take(padded_keys() * shape.head_dim / 4));
  value_q_ = reinterpret_cast<uint8_t*>(take(padded_keys() * shape.head_dim / 4));
  key_scales_ = take(padded_keys() * key_groups());
  value_scales_ = take(blocks() * shape.head_dim);
  value_least_ = take(blocks() * shape.head_dim);
  value_middle_ = reinterpret_cast<int32_t*>(take(blocks() * shape.head_dim));
}

PackedAttention::KeyPanel PackedAttention::Keys(int64_t kv_head, int64_t panel) const {
  const int64_t at = kv_head * key_panels() + panel;
  return {key_q_ + at * key_panel_bytes(), key_scales_ + at * key_groups() * kInt8PanelCols};
}

PackedAttention::ValuePanel PackedAttention::Values(int64_t kv_head, int64_t block, int64_t dim_panel) const {
  // All panels of a block lie together.
  const int64_t first = (kv_head * padded_keys() + block * kKeyBlock) * shape_.head_dim;
  const int64_t scales = (kv_head * blocks() + block) * shape_.head_dim + dim_panel * kInt8PanelCols;
  return {value_q_ + first + dim_panel * value_panel_bytes(block), value_scales_ + scales,
          value_least_ + scales, value_middle_ + scales};
}

}  // namespace qwen_image

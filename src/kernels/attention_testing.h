// Inputs for the tests of attention.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/interface.h"
#include "kernels/testing.h"

namespace qwen_image::testing {

struct AttentionCase {
  int64_t queries = 0, keys = 0;
  AttentionShape shape;
  int64_t q_stride = 0, kv_stride = 0;

  int64_t q_cols() const { return shape.heads * shape.head_dim; }
  int64_t kv_cols() const { return shape.kv_heads * shape.head_dim; }
};

inline AttentionCase Dense(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, int64_t head_dim,
                           bool causal = false) {
  return {queries, keys, {heads, kv_heads, head_dim, causal}, heads * head_dim, kv_heads * head_dim};
}

struct AttentionInputs {
  explicit AttentionInputs(const AttentionCase& c, float scale = 1.0f)
      : q(Random(c.queries * c.q_stride, 1, scale)),
        k(Random(c.keys * c.kv_stride, 2, scale)),
        v(Random(c.keys * c.kv_stride, 3)),
        sizes(c) {}
  ConstView queries() const { return {q.data(), sizes.queries, sizes.q_cols(), sizes.q_stride}; }
  ConstView keys() const { return {k.data(), sizes.keys, sizes.kv_cols(), sizes.kv_stride}; }
  ConstView values() const { return {v.data(), sizes.keys, sizes.kv_cols(), sizes.kv_stride}; }

  std::vector<float> q, k, v;
  AttentionCase sizes;
};

}  // namespace qwen_image::testing

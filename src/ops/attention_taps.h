// What an attention never holds in memory; computed beside it, and only for listeners who ask.
#pragma once

#include "core/view.h"
#include "kernels/kernels.h"
#include "ops/ops.h"

namespace qwen_image {

inline bool WantsInside(const AttentionInput& input, const Tap& tap) {
  return (input.weights && tap.Wants(input.weights)) || (input.entropy && tap.Wants(input.entropy));
}

void ShowInside(const AttentionInput& input, ConstView q /*[queries, heads · head_dim]*/,
                ConstView k /*[keys, kv_heads · head_dim]*/, ThreadPool& pool, const Tap& tap);

}  // namespace qwen_image

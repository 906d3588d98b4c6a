// Checkpoints inside an attention. The kernels never hold these tensors in memory, so they are computed
// separately, and only if a listener wants them.
#pragma once

#include "core/view.h"
#include "kernels/interface.h"
#include "ops/interface.h"

namespace qwen_image {

inline bool WantsInside(const AttentionInput& input, const Tap& tap) {
  return (input.weights && tap.Wants(input.weights)) || (input.entropy && tap.Wants(input.entropy));
}

void ShowInside(const AttentionInput& input, ConstView q /*[queries, heads · head_dim]*/,
                ConstView k /*[keys, kv_heads · head_dim]*/, ThreadPool& pool, const Tap& tap);

}  // namespace qwen_image

// What is added to the weights of a model while it runs. The weights themselves stay as their files have
// them. lora/set.h holds the updates that users ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/weight_matrix.h"

namespace qwen_image {

// A linear layer's weight becomes W + factor · up · down, without being changed itself: it may be quantized.
struct LowRankUpdate {
  WeightMatrix down;  // [rank, in]
  WeightMatrix up;    // [out, rank]
  float factor = 1;   // the user's scale · alpha / rank
};

class WeightUpdates {
 public:
  WeightUpdates() = default;
  WeightUpdates(WeightUpdates&&) = default;
  WeightUpdates& operator=(WeightUpdates&&) = default;
  virtual ~WeightUpdates() = default;

  // What is added to the linear layer `module`, whose weight is [out, in].
  virtual const std::vector<LowRankUpdate>& Take(const std::string& module, int64_t out, int64_t in) = 0;
  // A model calls this when it has taken all of its layers. Throws Error kBadInput that lists every update
  // that has no layer, or one of another size.
  virtual void Finish() = 0;
};

}  // namespace qwen_image

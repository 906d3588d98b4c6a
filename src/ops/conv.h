// The weights of convolutions over pictures whose channels come last: [height, width, channels].
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/weight_matrix.h"

namespace qwen_image {

// 1 × 1, or 3 × 3 with a stride: few and small.
struct Conv {
  int64_t in = 0, out = 0, kernel = 0;
  std::vector<float> weight;  // [out, kernel, kernel, in]
  std::vector<float> bias;    // [out]
};

// 3 × 3 with stride 1 and one zero around the picture: nearly all of the weights. They stay in the file until
// they are used.
struct Conv3x3Layer {
  int64_t in = 0, out = 0;
  WeightMatrix weight;      // [out, in · slices · 3 · 3], of which the last slice counts
  std::vector<float> bias;  // [out]
  std::shared_ptr<const std::vector<float>> converted;  // what `weight` points to, if not into the file
};

// x ↦ conv2(SiLU(norm2(conv1(SiLU(norm1(x))))))
struct ConvBranch {
  std::vector<float> norm1, norm2;  // gamma, [channels]
  Conv3x3Layer conv1, conv2;
};

}  // namespace qwen_image

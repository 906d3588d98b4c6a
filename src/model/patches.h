// Patches of pictures on their way into a vision encoder of Qwen-VL.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "model/image_grid.h"
#include "weights/binder.h"

namespace qwen_image {

// Throws Error kUsage if a grid does not split into merged tokens, or the pixels are not the grids'.
void CheckPatches(const Tensor& pixel_values /*[patches, patch_values]*/, std::span<const ImageGrid> grids,
                  int64_t spatial_merge_size, int64_t patch_values);

struct PatchShape {
  int64_t in_channels = 3;
  int64_t temporal_patch_size = 2;
  int64_t patch_size = 0;

  int64_t values() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
};

// The convolution `name`, whose stride is its kernel, as the matrix [out, values of a patch] that it is. As
// torch has it, [out, in_channels, temporal_patch_size, patch_size, patch_size]; files of llama.cpp hold a
// tensor for each of the frames; a matrix may be one already. Empty if something does not fit: the binder's
// Finish() says what.
std::vector<float> BindPatchEmbed(const std::string& name, int64_t out, const PatchShape& shape,
                                  const WeightStore& store, WeightBinder& binder);

}  // namespace qwen_image

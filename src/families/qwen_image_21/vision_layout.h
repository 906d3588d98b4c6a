// Where the patches of pictures lie: what their rows and columns mean for the vision encoder.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "families/qwen_image_21/vision_encoder.h"

namespace qwen_image::qwen_image_21 {

// A patch's position embedding is a sum of four rows of the learned table, the corners around its place.
struct PositionTaps {
  std::array<int64_t, 4> rows;
  std::array<float, 4> weights;
};

// For all patches, in the order of the pixels: merged tokens row by row, each with its merge_unit patches.
struct VisionLayout {
  std::vector<PositionTaps> positions;
  Tensor cos, sin;  // [patches, head_dim / 2]: half of the angles follow the row, half the column
  std::vector<int64_t> frame_ends;  // patches see those of their own frame only
};

VisionLayout MakeVisionLayout(const VisionEncoderConfig& config, std::span<const ImageGrid> grids);

}  // namespace qwen_image::qwen_image_21

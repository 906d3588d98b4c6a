#include "families/qwen_image_21/vision_layout.h"

#include <algorithm>
#include <cmath>

namespace qwen_image::qwen_image_21 {
namespace {

// Both neighbours of a place on one axis of the learned table, whose corners are those of the picture. In
// float, as transformers computes it: a place that rounds to a whole number has one neighbour only.
struct AxisTaps {
  std::array<int64_t, 2> indexes;
  std::array<float, 2> weights;
};

AxisTaps TapsOf(int64_t index, int64_t size, int64_t side) {
  const float place = static_cast<float>(index) * static_cast<float>(side - 1) /
                      static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float floor = std::floor(place);
  const auto first = static_cast<int64_t>(floor);
  return {{std::min(first, side - 1), std::min(first + 1, side - 1)},
          {1.0f - (place - floor), 1.0f - std::abs(place - floor - 1.0f)}};
}

// Writes the patches one by one.
class LayoutWriter {
 public:
  LayoutWriter(const VisionEncoderConfig& config, int64_t patches)
      : side_(config.position_side()), quarter_(config.head_dim() / 4) {
    layout_.positions.reserve(static_cast<size_t>(patches));
    layout_.cos = Tensor({patches, 2 * quarter_});
    layout_.sin = Tensor({patches, 2 * quarter_});
    for (int64_t i = 0; i < quarter_; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * quarter_);
      inv_freq_.push_back(1.0f / std::pow(static_cast<float>(config.rope_theta), exponent));
    }
  }

  void Add(int64_t row, int64_t column, const ImageGrid& grid) {
    const auto patch = static_cast<int64_t>(layout_.positions.size());
    for (int64_t i = 0; i < 2 * quarter_; ++i) {
      const float angle =
          static_cast<float>(i < quarter_ ? row : column) * inv_freq_[static_cast<size_t>(i % quarter_)];
      layout_.cos.row(patch)[i] = std::cos(angle);
      layout_.sin.row(patch)[i] = std::sin(angle);
    }
    const AxisTaps h = TapsOf(row, grid.h, side_), w = TapsOf(column, grid.w, side_);
    PositionTaps& taps = layout_.positions.emplace_back();
    for (size_t i = 0; i < 4; ++i) {
      taps.rows[i] = h.indexes[i / 2] * side_ + w.indexes[i % 2];
      taps.weights[i] = h.weights[i / 2] * w.weights[i % 2];
    }
  }
  void EndFrame() { layout_.frame_ends.push_back(static_cast<int64_t>(layout_.positions.size())); }
  VisionLayout Take() { return std::move(layout_); }

 private:
  const int64_t side_, quarter_;
  std::vector<float> inv_freq_;  // [quarter_]
  VisionLayout layout_;
};

}  // namespace

VisionLayout MakeVisionLayout(const VisionEncoderConfig& config, std::span<const ImageGrid> grids) {
  const int64_t merge = config.spatial_merge_size;
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) patches += grid.patches();
  LayoutWriter writer(config, patches);
  for (const ImageGrid& grid : grids) {
    for (int64_t t = 0; t < grid.t; ++t) {
      for (int64_t token = 0; token < grid.h * grid.w / config.merge_unit(); ++token) {
        const int64_t top = token / (grid.w / merge) * merge, left = token % (grid.w / merge) * merge;
        for (int64_t i = 0; i < config.merge_unit(); ++i) writer.Add(top + i / merge, left + i % merge, grid);
      }
      writer.EndFrame();
    }
  }
  return writer.Take();
}

}  // namespace qwen_image::qwen_image_21

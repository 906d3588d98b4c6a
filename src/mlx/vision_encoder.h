// The vision encoder on MLX: the twin of model/vision_encoder.h.
#pragma once

#include <memory>

#include "families/qwen_image/vision_encoder.h"
#include "mlx/layers.h"

namespace qwen_image::on_mlx {

class VisionEncoder : public qwen_image::VisionEncoder::Twin {
 public:
  // `host` stays where it is.
  VisionEncoder(const qwen_image::VisionEncoder& host, const Placement& placement);
  ~VisionEncoder() override;

  Tensor Encode(const Tensor& pixel_values, const qwen_image::VisionEncoder::Layout& layout,
                const Compute& compute, const Tap& tap) const override;
  void Release() const override;

 private:
  struct Block;
  struct Merger;
  struct Layout {
    std::vector<int64_t> window_ends, frame_ends;  // in patches
    array cos, sin;                                // [patches, head_dim / 2]
  };

  array RunAttention(const Block& w, const array& x, const Layout& layout, const Tap& tap) const;
  array RunMlp(const Block& w, const array& x, const Tap& tap) const;
  void RunBlock(const Block& w, array& hidden_states, const Layout& layout, const Tap& tap) const;
  array RunMerger(const array& hidden_states, const Tap& tap) const;

  const qwen_image::VisionEncoder& host_;
  const VisionEncoderConfig& config_;
  const Placement placement_;
  mutable LazyLayers<Block> blocks_;  // gone after Release(), as the merger
  mutable std::unique_ptr<Merger> merger_;
};

}  // namespace qwen_image::on_mlx

// The text encoder's layers on MLX: the twin of model/text_encoder.h.
#pragma once

#include <memory>

#include "families/qwen_image/text_encoder.h"
#include "mlx/layers.h"

namespace qwen_image::on_mlx {

class TextEncoder : public qwen_image::TextEncoder::Twin {
 public:
  // `host` stays where it is.
  TextEncoder(const qwen_image::TextEncoder& host, const Placement& placement);
  ~TextEncoder() override;

  Tensor RunLayers(const Tensor& inputs_embeds, const qwen_image::TextEncoder::Rope& rope,
                   const Compute& compute, const Tap& tap) const override;
  void Release() const override;

 private:
  struct Layer;
  struct Rope {
    array cos, sin;  // [tokens, head_dim / 2]
  };

  array RunSelfAttention(const Layer& w, const array& x, const Rope& rope, const Tap& tap) const;
  array RunMlp(const Layer& w, const array& x, const Tap& tap) const;
  void RunLayer(const Layer& w, array& hidden_states, const Rope& rope, const Tap& tap) const;

  const qwen_image::TextEncoder& host_;
  const TextEncoderConfig& config_;
  const Placement placement_;
  mutable LazyLayers<Layer> layers_;  // gone after Release()
};

}  // namespace qwen_image::on_mlx

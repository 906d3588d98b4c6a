// The VAE's passes on MLX: the twin of model/vae.h. MLX's convolutions are channels-last, as the host's are:
// only pictures and checkpoints are turned. Always in float32.
#pragma once

#include <memory>

#include "families/qwen_image/vae.h"
#include "mlx/layers.h"

namespace qwen_image::on_mlx {

class Vae : public qwen_image::Vae::Twin {
 public:
  // `host` stays where it is.
  Vae(const qwen_image::Vae& host, const mx::Device& device);
  ~Vae() override;

  Tensor Decode(const Tensor& latents, const Compute& compute, const Tap& tap) const override;
  Tensor Encode(const Tensor& image, const Compute& compute, const Tap& tap) const override;
  void Release() const override;

 private:
  const qwen_image::Vae& host_;
  const mx::Device device_;
};

}  // namespace qwen_image::on_mlx

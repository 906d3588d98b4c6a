// Pixels ⇄ latents, by the VAE of Qwen-Image-2.1.
#pragma once

#include "families/model.h"
#include "families/qwen_image_21/vae.h"

namespace qwen_image::qwen_image_21 {

// Of pictures above Geometry::untiled_pixels.
inline constexpr VaeTiling kLargePictureTiling = {.min_size = 1024, .stride = 768};

Geometry GeometryOf(const VaeConfig& config);

// The memory that the VAE works in, beside its weights, in bytes.
int64_t VaeWorkspace(const VaeConfig& config, const Geometry& geometry, const Workload& workload);

class QwenImage21Autoencoder final : public Autoencoder {
 public:
  explicit QwenImage21Autoencoder(WeightStore store) : vae_(std::move(store)) {}

  Vae& vae() { return vae_; }
  const Vae& vae() const { return vae_; }

  // A picture without alpha is opaque.
  Tensor Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const override;
  // The posterior's moments [1, 2 · z_dim, 1, h, w].
  Tensor Encode(const Tensor& pixels, bool tiled, const Compute& compute, const Tap& tap) const override;
  Tensor Latents(const Tensor& encoded, TokenGrid grid, TorchGenerator* generator) const override;
  Tensor Pack(const Tensor& plain, TokenGrid grid) const override;
  Tensor PackMask(const Tensor& mask, TokenGrid grid) const override;
  Shape DecodedShape(TokenGrid grid) const override;  // [1, z_dim, 1, h, w]
  Tensor Unpack(const Tensor& packed, TokenGrid grid) const override;
  Tensor Decode(const Tensor& latents, bool tiled, const Compute& compute, const Tap& tap) const override;

 private:
  Vae vae_;
};

}  // namespace qwen_image::qwen_image_21

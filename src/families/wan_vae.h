// A VAE made from the video model Wan, as the pipeline uses it: pictures and latents, whole or in tiles. The
// families bring the passes.
#pragma once

#include <cstdint>
#include <memory>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "model/tiles.h"
#include "ops/interface.h"
#include "weights/store.h"

namespace qwen_image {

// To [−1, 1]; NaN stays NaN.
void ClampPixels(Tensor& image);

class WanVae {
 public:
  virtual ~WanVae() = default;

  const WeightStore& store() const { return store_; }

  // Latents [1, z_dim, 1, h, w] (already × std + mean) → picture [1, channels, scale · h, scale · w] in
  // [−1, 1].
  Tensor Decode(const Tensor& latents, const Compute& compute, const Tap& tap = {}) const;
  // The same tile by tile, if it is larger than a tile: little memory for large pictures.
  Tensor DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const;

  // Picture [1, channels, h, w] in [−1, 1] → the posterior's moments [1, 2 · z_dim, 1, h / scale, w / scale]:
  // means, then log-variances.
  Tensor Encode(const Tensor& image, const Compute& compute, const Tap& tap = {}) const;
  Tensor EncodeTiled(const Tensor& image, const VaeTiling& tiling, const Compute& compute) const;

  void UseBackend(std::shared_ptr<Backend> backend) { backend_ = std::move(backend); }
  void ReleasePages() const;  // see MappedFile; also the device's copies

 protected:
  struct Form {
    int64_t scale = 8;  // pixels per latent, along a side
    int64_t z_dim = 16;
    int64_t channels = 3;      // of pictures
    bool clamps_tiles = true;  // diffusers clamps all pictures of one VAE, of the other those without tiles
  };

  explicit WanVae(WeightStore store) : store_(std::move(store)) {}

  WeightStore store_;

 private:
  virtual Form form() const = 0;
  // The passes, for the whole picture or for one tile of it. The decoder's result is not clamped.
  virtual Array RunEncoder(Ops& ops, const Compute& compute, const Array& image, const Tap& tap) const = 0;
  virtual Array RunDecoder(Ops& ops, const Compute& compute, const Array& latents, const Tap& tap) const = 0;

  Tensor EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const;
  Tensor DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const;
  void CheckSides(const Tensor& image) const;

  std::shared_ptr<Backend> backend_ = CpuBackend();
};

}  // namespace qwen_image

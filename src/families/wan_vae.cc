#include "families/wan_vae.h"

#include <algorithm>

#include "core/fail.h"

namespace qwen_image {

void ClampPixels(Tensor& image) {
  std::transform(image.data(), image.data() + image.size(), image.data(), [](float v) {
    return v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
  });
}

void WanVae::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

Tensor WanVae::DecodeTile(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  const std::unique_ptr<Ops> ops = backend_->Start(compute);
  Tensor image;
  ops->Run([&] {
    const Array decoded = RunDecoder(*ops, compute, ops->FromPicture(latents), tap);
    image = ops->ToPicture(decoded, Frames::kNone);
  });
  return image;
}

Tensor WanVae::EncodeTile(const Tensor& image, const Compute& compute, const Tap& tap) const {
  const std::unique_ptr<Ops> ops = backend_->Start(compute);
  Tensor moments;
  ops->Run([&] {
    const Array encoded = RunEncoder(*ops, compute, ops->FromPicture(image), tap);
    moments = ops->ToPicture(encoded, Frames::kOne);
  });
  return moments;
}

Tensor WanVae::Decode(const Tensor& latents, const Compute& compute, const Tap& tap) const {
  Tensor image = DecodeTile(latents, compute, tap);
  store_.ThrowIfDamaged();
  ClampPixels(image);
  return image;
}

Tensor WanVae::DecodeTiled(const Tensor& latents, const VaeTiling& tiling, const Compute& compute) const {
  const Form form = this->form();
  const int64_t height = latents.dim(3) * form.scale, width = latents.dim(4) * form.scale;
  CheckTiling(tiling, form.scale);
  if (height <= tiling.min_size && width <= tiling.min_size) return Decode(latents, compute);
  Tensor image({1, form.channels, height, width});
  ProcessTiles(
      latents, DecodedTiles(tiling, form.scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return DecodeTile(tile, compute.ForPass(index, count), {});
      },
      image);
  store_.ThrowIfDamaged();
  if (form.clamps_tiles) ClampPixels(image);
  return image;
}

void WanVae::CheckSides(const Tensor& image) const {
  const int64_t scale = form().scale;
  if (image.dim(2) % scale == 0 && image.dim(3) % scale == 0) return;
  Fail(ErrorKind::kUsage, "the VAE encodes pictures whose sides are multiples of {}, not {}x{}", scale,
       image.dim(3), image.dim(2));
}

Tensor WanVae::Encode(const Tensor& image, const Compute& compute, const Tap& tap) const {
  CheckSides(image);
  Tensor moments = EncodeTile(image, compute, tap);
  store_.ThrowIfDamaged();
  return moments;
}

Tensor WanVae::EncodeTiled(const Tensor& image, const VaeTiling& tiling, const Compute& compute) const {
  const Form form = this->form();
  CheckTiling(tiling, form.scale);
  CheckSides(image);
  if (image.dim(2) <= tiling.min_size && image.dim(3) <= tiling.min_size) return Encode(image, compute);
  Tensor moments({1, 2 * form.z_dim, 1, image.dim(2) / form.scale, image.dim(3) / form.scale});
  ProcessTiles(
      image, EncodedTiles(tiling, form.scale),
      [&](const Tensor& tile, int64_t index, int64_t count) {
        return EncodeTile(tile, compute.ForPass(index, count), {});
      },
      moments);
  store_.ThrowIfDamaged();
  return moments;
}

}  // namespace qwen_image

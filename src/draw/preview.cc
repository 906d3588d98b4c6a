#include "draw/preview.h"

#include <algorithm>
#include <utility>

#include "draw/stages.h"

namespace qwen_image::draw {
namespace {

// Means of factor × factor latents; what is left over at the right and at the bottom is dropped.
Tensor AverageDown(const Tensor& latents /*[…, h, w]*/, int64_t factor) {
  Shape shape = latents.shape();
  const int64_t from_height = shape[shape.size() - 2], from_width = shape.back();
  const int64_t channels = latents.size() / (from_height * from_width);
  const int64_t height = from_height / factor, width = from_width / factor;
  shape[shape.size() - 2] = height;
  shape.back() = width;
  Tensor small(shape);
  std::fill_n(small.data(), small.size(), 0.0f);
  const float share = 1.0f / static_cast<float>(factor * factor);
  for (int64_t c = 0; c < channels; ++c) {
    const float* plane = latents.data() + c * from_height * from_width;
    for (int64_t y = 0; y < height * factor; ++y) {
      float* row = small.data() + (c * height + y / factor) * width;
      for (int64_t x = 0; x < width * factor; ++x) row[x / factor] += share * plane[y * from_width + x];
    }
  }
  return small;
}

}  // namespace

Image Preview(const Run& run, const Tensor& latents, const Tensor& velocity, float sigma) {
  Tensor clean = latents.Clone();
  for (int64_t i = 0; i < clean.size(); ++i) clean[i] -= sigma * velocity[i];
  Tensor unpacked = run.model.autoencoder().Unpack(clean, run.settings.grid);
  const Shape& shape = unpacked.shape();
  const int64_t height = shape[shape.size() - 2], width = shape.back();
  const int64_t most = kMaxPreviewSide / run.geometry().pixels_per_latent;
  // A strip's short side must not vanish.
  const int64_t factor = std::min((std::max(height, width) + most - 1) / most, std::min(height, width));
  if (factor > 1) unpacked = AverageDown(unpacked, factor);
  const Compute quiet{run.compute.pool, run.compute.cancel};  // no part of the run's progress
  Image preview = ToImage(run.model, run.model.autoencoder().Decode(unpacked, /*tiled=*/false, quiet, Tap()));
  const std::optional<Colour>& background = run.settings.background;
  return background ? Flatten(std::move(preview), *background) : preview;
}

}  // namespace qwen_image::draw

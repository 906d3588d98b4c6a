#include "pipeline/preview.h"

#include <algorithm>

#include "families/qwen_image/latents.h"
#include "pipeline/stages.h"

namespace qwen_image {
namespace {

constexpr int64_t kPixelsPerLatent = 8;

// Means of factor × factor latents; what is left over at the right and at the bottom is dropped.
Tensor AverageDown(const Tensor& latents /*[1, z, 1, h, w]*/, int64_t factor) {
  const int64_t channels = latents.dim(1), from_width = latents.dim(4);
  const int64_t height = latents.dim(3) / factor, width = from_width / factor;
  Tensor small({1, channels, 1, height, width});
  std::fill_n(small.data(), small.size(), 0.0f);
  const float share = 1.0f / static_cast<float>(factor * factor);
  for (int64_t c = 0; c < channels; ++c) {
    const float* plane = latents.data() + c * latents.dim(3) * from_width;
    for (int64_t y = 0; y < height * factor; ++y) {
      float* row = small.data() + (c * height + y / factor) * width;
      for (int64_t x = 0; x < width * factor; ++x) row[x / factor] += share * plane[y * from_width + x];
    }
  }
  return small;
}

}  // namespace

RgbImage Preview(const Pipeline::Impl& model, const Run& run, const Tensor& latents, const Tensor& velocity,
                 float sigma) {
  Tensor clean = latents.Clone();
  for (int64_t i = 0; i < clean.size(); ++i) clean[i] -= sigma * velocity[i];
  Tensor vae_latents = UnpackLatents(clean, model.vae.config().z_dim, run.settings.grid);
  DenormalizeLatents(model.vae.config(), vae_latents);
  const int64_t most = kMaxPreviewSide / kPixelsPerLatent;
  const int64_t side = std::max(vae_latents.dim(3), vae_latents.dim(4));
  // A strip's short side must not vanish.
  const int64_t factor = std::min((side + most - 1) / most, std::min(vae_latents.dim(3), vae_latents.dim(4)));
  if (factor > 1) vae_latents = AverageDown(vae_latents, factor);
  const Compute quiet{model.pool, run.compute.cancel};  // no part of the run's progress
  return ToRgb(model, model.vae.Decode(vae_latents, quiet, Tap()));
}

}  // namespace qwen_image

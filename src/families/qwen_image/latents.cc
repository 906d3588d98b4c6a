#include "families/qwen_image/latents.h"

#include <algorithm>
#include <cmath>

#include "kernels/resize.h"

namespace qwen_image {
namespace {

// Calls visit(index in [channels, h, w], index in the packed [tokens, channels · 4]) for every latent.
template <typename Visit>
void ForEachLatent(int64_t channels, TokenGrid grid, const Visit& visit) {
  const int64_t height = 2 * grid.height, width = 2 * grid.width;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t token = (y / 2) * grid.width + x / 2;
        visit((c * height + y) * width + x, (token * channels + c) * 4 + (y % 2) * 2 + x % 2);
      }
    }
  }
}

}  // namespace

Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid) {
  Tensor packed({1, grid.height * grid.width, 4 * channels});
  ForEachLatent(channels, grid, [&](int64_t plain, int64_t at) { packed[at] = latents[plain]; });
  return packed;
}

Tensor PackMask(const Tensor& mask, int64_t channels, TokenGrid grid) {
  const Tensor small = InterpolateNearest(mask, 2 * grid.height, 2 * grid.width);
  Tensor repeated({1, channels, 1, small.dim(2), small.dim(3)});
  for (int64_t c = 0; c < channels; ++c) {
    std::copy_n(small.data(), small.size(), repeated.data() + c * small.size());
  }
  return PackLatents(repeated, channels, grid);
}

Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid) {
  Tensor latents({1, channels, 1, 2 * grid.height, 2 * grid.width});
  ForEachLatent(channels, grid, [&](int64_t plain, int64_t at) { latents[plain] = packed[at]; });
  return latents;
}

Tensor PosteriorMode(const Tensor& moments) {
  const Shape& shape = moments.shape();
  Tensor mean({1, shape[1] / 2, 1, shape[3], shape[4]});
  std::copy_n(moments.data(), mean.size(), mean.data());
  return mean;
}

Tensor PosteriorSample(const Tensor& moments, TorchGenerator& generator) {
  Tensor latents = PosteriorMode(moments), noise(latents.shape());
  generator.Normal(noise.data(), noise.size());
  const float* log_variance = moments.data() + latents.size();
  for (int64_t i = 0; i < latents.size(); ++i)
    latents[i] += std::exp(0.5f * std::clamp(log_variance[i], -30.0f, 20.0f)) * noise[i];
  return latents;
}

void NormalizeLatents(const VaeConfig& vae, Normalization how, Tensor& latents) {
  const int64_t area = latents.dim(3) * latents.dim(4);
  for (int64_t c = 0; c < vae.z_dim; ++c) {
    const auto mean = static_cast<float>(vae.latents_mean[static_cast<size_t>(c)]),
               std = static_cast<float>(vae.latents_std[static_cast<size_t>(c)]);
    const float inverse = 1.0f / std;
    for (int64_t p = c * area; p < (c + 1) * area; ++p) {
      const float centred = latents[p] - mean;
      latents[p] = how == Normalization::kDivide ? centred / std : centred * inverse;
    }
  }
}

void DenormalizeLatents(const VaeConfig& vae, Tensor& latents) {
  const int64_t area = latents.dim(3) * latents.dim(4);
  for (int64_t c = 0; c < vae.z_dim; ++c) {
    // The pipeline divides by the inverse; so do we, to round alike.
    const float inverse_std = 1.0f / static_cast<float>(vae.latents_std[static_cast<size_t>(c)]);
    const auto mean = static_cast<float>(vae.latents_mean[static_cast<size_t>(c)]);
    for (int64_t p = c * area; p < (c + 1) * area; ++p) latents[p] = latents[p] / inverse_std + mean;
  }
}

}  // namespace qwen_image

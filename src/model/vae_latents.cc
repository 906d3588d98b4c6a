#include "model/vae_latents.h"

#include <algorithm>
#include <cmath>

namespace qwen_image {
namespace {

// Calls visit(value, mean, std) for every value.
template <typename Visit>
void ForEachValue(std::span<const double> mean, std::span<const double> std, Tensor& latents,
                  const Visit& visit) {
  const int64_t area = latents.dim(3) * latents.dim(4);
  for (size_t c = 0; c < mean.size(); ++c) {
    const auto channel_mean = static_cast<float>(mean[c]), channel_std = static_cast<float>(std[c]);
    float* const values = latents.data() + static_cast<int64_t>(c) * area;
    for (int64_t p = 0; p < area; ++p) visit(values[p], channel_mean, channel_std);
  }
}

}  // namespace

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

void NormalizeLatents(std::span<const double> mean, std::span<const double> std, ScaleBy by,
                      Tensor& latents) {
  ForEachValue(mean, std, latents, [by](float& x, float m, float s) {
    x = by == ScaleBy::kStd ? (x - m) / s : (x - m) * (1.0f / s);
  });
}

void DenormalizeLatents(std::span<const double> mean, std::span<const double> std, ScaleBy by,
                        Tensor& latents) {
  ForEachValue(mean, std, latents,
               [by](float& x, float m, float s) { x = (by == ScaleBy::kStd ? x * s : x / (1.0f / s)) + m; });
}

}  // namespace qwen_image

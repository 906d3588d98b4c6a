#include "families/qwen_image/latents.h"

#include <algorithm>

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

}  // namespace qwen_image

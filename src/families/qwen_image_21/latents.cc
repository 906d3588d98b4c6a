#include "families/qwen_image_21/latents.h"

#include <algorithm>

#include "kernels/resize.h"

namespace qwen_image::qwen_image_21 {

Tensor PackLatents(const Tensor& latents, int64_t channels, TokenGrid grid) {
  const int64_t tokens = grid.tokens();
  Tensor packed({1, tokens, channels});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) packed[t * channels + c] = latents[c * tokens + t];
  }
  return packed;
}

Tensor UnpackLatents(const Tensor& packed, int64_t channels, TokenGrid grid) {
  const int64_t tokens = grid.tokens();
  Tensor latents({1, channels, 1, grid.height, grid.width});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) latents[c * tokens + t] = packed[t * channels + c];
  }
  return latents;
}

Tensor PackMask(const Tensor& mask, int64_t channels, TokenGrid grid) {
  const Tensor small = InterpolateNearest(mask, grid.height, grid.width);
  Tensor packed({1, grid.tokens(), channels});
  for (int64_t t = 0; t < grid.tokens(); ++t) std::fill_n(packed.row(t), channels, small[t]);
  return packed;
}

}  // namespace qwen_image::qwen_image_21

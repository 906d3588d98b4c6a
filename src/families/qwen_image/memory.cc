#include "families/qwen_image/memory.h"

#include <algorithm>

#include "families/qwen_image/autoencoder.h"

namespace qwen_image {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t Area(ImageSize size) { return size.width * size.height; }

}  // namespace

// In rows of inner_dim for a token: residual streams of both prompts (2), the input and output of a layer
// (2), q, k, v and the attention's output (4), its packed keys and values (2), the MLP's fourfold hidden
// layer (4), and that in 8 bits (1).
int64_t TransformerWorkspace(const TransformerConfig& config, const Geometry& geometry,
                             const Workload& workload) {
  int64_t tokens = geometry.GridOf(workload.picture).tokens() + workload.prompt_tokens;
  const int64_t side = geometry.pixels_per_token();
  for (const EditInputSizes& sizes : workload.references) {
    // Its latents, and its share of the prompt: a token for 28 × 28 pixels.
    tokens += Area(sizes.vae) / (side * side) + Area(sizes.condition) / (28 * 28);
  }
  return tokens * config.inner_dim() * 15 * kFloat;
}

// The decoder's last upsampling holds its input (half as many numbers) and its output, of base_dim channels a
// pixel. Beside them: a band of a residual block, the filters of its two convolutions in the form they are
// multiplied in (36 numbers for 9), and the picture in two layouts. The encoder needs no more for a picture
// of the same size.
int64_t VaeWorkspace(const VaeConfig& config, const Geometry& geometry, const Workload& workload) {
  constexpr int64_t kBand = 36 * 1000 * 1000;
  int64_t picture = 0, pixels = 0;  // of the largest, and of what is in work at once
  const auto consider = [&](ImageSize size) {
    constexpr int64_t kTile = kLargePictureTiling.min_size * kLargePictureTiling.min_size;
    picture = std::max(picture, Area(size));
    pixels =
        std::max(pixels, geometry.Tiles(workload.tiling, size) ? std::min(Area(size), kTile) : Area(size));
  };
  consider(workload.picture);
  for (const EditInputSizes& sizes : workload.references) consider(sizes.vae);
  const int64_t widest = config.base_dim * *std::max_element(config.dim_mult.begin(), config.dim_mult.end());
  return pixels * config.base_dim * 3 / 2 * kFloat + kBand + 2 * 36 * widest * widest * kFloat +
         2 * picture * config.input_channels * kFloat;
}

}  // namespace qwen_image

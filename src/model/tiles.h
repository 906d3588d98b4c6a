// Spatial tiling: overlapping tiles of a picture go through a VAE one after the other and are blended where
// they overlap, with the same geometry as diffusers' enable_tiling().
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace qwen_image {

// Tiles overlap by min_size − stride pixels and are blended there.
struct VaeTiling {
  int64_t min_size = 256;  // side of a tile in pixels
  int64_t stride = 192;
};

// Throws Error kUsage unless tiles are whole latents of `scale` pixels.
void CheckTiling(const VaeTiling& tiling, int64_t scale);

struct TileGeometry {
  int64_t in_size, in_stride;    // of a tile before the VAE
  int64_t out_size, out_stride;  // and after it
};
// From pixels to latents, each of `scale` pixels a side, and back.
TileGeometry EncodedTiles(const VaeTiling& tiling, int64_t scale);
TileGeometry DecodedTiles(const VaeTiling& tiling, int64_t scale);

// Runs `process` on all tiles of `input` and lays their blended results into `output` ([1, c, (1,) h, w]).
void ProcessTiles(const Tensor& input, const TileGeometry& g,
                  const std::function<Tensor(const Tensor& tile, int64_t index, int64_t count)>& process,
                  Tensor& output);

}  // namespace qwen_image

#include "model/tiles.h"

#include <algorithm>
#include <vector>

#include "core/fail.h"

namespace qwen_image {
namespace {

// A cut of `x` [1, c, (1,) h, w]: rows from `top`, columns from `left`, at most `size` of each.
Tensor Cut(const Tensor& x, int64_t top, int64_t left, int64_t size) {
  const int64_t channels = x.dim(1), height = x.shape().end()[-2], width = x.shape().end()[-1];
  Shape shape = x.shape();
  const int64_t rows = shape.end()[-2] = std::min(size, height - top);
  const int64_t cols = shape.end()[-1] = std::min(size, width - left);
  Tensor y(shape);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(x.data() + (c * height + top + r) * width + left, cols, y.data() + (c * rows + r) * cols);
    }
  }
  return y;
}

// Fades from the last rows of `above` to the first rows of `tile`.
void BlendRows(const Tensor& above, Tensor& tile, int64_t extent) {
  const int64_t above_rows = above.shape().end()[-2], rows = tile.shape().end()[-2];
  const int64_t cols = tile.shape().end()[-1], channels = tile.dim(1);
  extent = std::min({above_rows, rows, extent});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < extent; ++y) {
      const float weight = static_cast<float>(static_cast<double>(y) / static_cast<double>(extent));
      const float rest = static_cast<float>(1.0 - static_cast<double>(y) / static_cast<double>(extent));
      const float* a = above.data() + (c * above_rows + above_rows - extent + y) * cols;
      float* b = tile.data() + (c * rows + y) * cols;
      for (int64_t x = 0; x < cols; ++x) b[x] = a[x] * rest + b[x] * weight;
    }
  }
}

// Fades from the last columns of `before` to the first columns of `tile`.
void BlendCols(const Tensor& before, Tensor& tile, int64_t extent) {
  const int64_t before_cols = before.shape().end()[-1], cols = tile.shape().end()[-1];
  const int64_t rows = tile.shape().end()[-2], channels = tile.dim(1);
  extent = std::min({before_cols, cols, extent});
  for (int64_t line = 0; line < channels * rows; ++line) {
    const float* a = before.data() + line * before_cols + before_cols - extent;
    float* b = tile.data() + line * cols;
    for (int64_t x = 0; x < extent; ++x) {
      const double weight = static_cast<double>(x) / static_cast<double>(extent);
      b[x] = a[x] * static_cast<float>(1.0 - weight) + b[x] * static_cast<float>(weight);
    }
  }
}

}  // namespace

void ProcessTiles(const Tensor& input, const TileGeometry& g,
                  const std::function<Tensor(const Tensor& tile, int64_t index, int64_t count)>& process,
                  Tensor& output) {
  const int64_t height = input.shape().end()[-2], width = input.shape().end()[-1];
  const int64_t out_height = output.shape().end()[-2], out_width = output.shape().end()[-1];
  const int64_t blend = g.out_size - g.out_stride;
  const int64_t count =
      ((height + g.in_stride - 1) / g.in_stride) * ((width + g.in_stride - 1) / g.in_stride);
  int64_t index = 0;
  std::vector<Tensor> above;  // the tiles of the row before, already blended
  for (int64_t top = 0, out_top = 0; top < height; top += g.in_stride, out_top += g.out_stride) {
    std::vector<Tensor> row;
    for (int64_t left = 0, out_left = 0; left < width; left += g.in_stride, out_left += g.out_stride) {
      Tensor tile = process(Cut(input, top, left, g.in_size), index++, count);
      if (!above.empty()) BlendRows(above[row.size()], tile, blend);
      if (!row.empty()) BlendCols(row.back(), tile, blend);

      const int64_t rows = tile.shape().end()[-2], cols = tile.shape().end()[-1];
      const int64_t keep_rows = std::min({rows, g.out_stride, out_height - out_top});
      const int64_t keep_cols = std::min({cols, g.out_stride, out_width - out_left});
      for (int64_t c = 0; c < output.dim(1); ++c) {
        for (int64_t r = 0; r < keep_rows; ++r) {
          std::copy_n(tile.data() + (c * rows + r) * cols, keep_cols,
                      output.data() + (c * out_height + out_top + r) * out_width + out_left);
        }
      }
      row.push_back(std::move(tile));
    }
    above = std::move(row);
  }
}

void CheckTiling(const VaeTiling& tiling, int64_t scale) {
  if (tiling.stride < scale || tiling.stride > tiling.min_size || tiling.stride % scale ||
      tiling.min_size % scale) {
    Fail(ErrorKind::kUsage,
         "a VAE tile of {} pixels with stride {} is impossible: both must be multiples of {}, and the "
         "stride at most the tile",
         tiling.min_size, tiling.stride, scale);
  }
}

TileGeometry EncodedTiles(const VaeTiling& tiling, int64_t scale) {
  return {tiling.min_size, tiling.stride, tiling.min_size / scale, tiling.stride / scale};
}

TileGeometry DecodedTiles(const VaeTiling& tiling, int64_t scale) {
  return {tiling.min_size / scale, tiling.stride / scale, tiling.min_size, tiling.stride};
}

}  // namespace qwen_image

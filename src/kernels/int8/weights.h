// Weights as products with 8-bit activations want them: panels of integers with scales and biases, unpacked
// from where the matrix lies, whatever its format.
#pragma once

#include "kernels/int8/tile.h"
#include "kernels/weight_matrix.h"

namespace qwen_image {

// The largest group of activations that a matrix can be multiplied with: 16, 32 or 64; 0: its values are not
// integers with scales, it cannot be multiplied here. Smaller groups that divide it will do as well.
int Int8GroupOf(const WeightMatrix& w);

// Above 0: activations must be rotated in groups of so many before they are quantized.
int64_t Int8RotationOf(const WeightMatrix& w);

// The planes that its panels have with this kernel: 1 or 2.
int Int8PlanesOf(const WeightMatrix& w, const Int8Kernel& kernel);

// Memory of one panel of `depth`, which is a multiple of the group.
struct Int8PanelBuffer {
  uint8_t* q;     // [planes][depth / 4][kInt8PanelCols][4]
  float* scales;  // [depth / group][kInt8PanelCols]
  float* biases;  // the same
  int64_t plane_bytes;
  int group;  // of the activations

  Int8Panel panel() const { return {q, scales, biases, plane_bytes}; }
};

// A panel starts and ends at multiples of this.
int64_t Int8DepthUnit(const WeightMatrix& w);

inline constexpr int64_t kInt8MaxDepth = 4096;  // of a panel

// Values [first, first + depth) of `cols` (at most kInt8PanelCols) rows from `row` on. Columns beyond `cols`
// repeat the last one.
void UnpackInt8Panel(const WeightMatrix& w, int64_t row, int64_t cols, int64_t first, int64_t depth,
                     const Int8Kernel& kernel, uint8_t* scratch /*[kInt8PanelCols, depth]*/,
                     const Int8PanelBuffer& to);

// Asks for the bytes of a row that will be unpacked soon, so that they are in the cache by then.
void PrefetchInt8Row(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth);

}  // namespace qwen_image

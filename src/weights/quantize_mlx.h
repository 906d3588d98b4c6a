// Quantizes as MLX does (mlx.core.quantize, mode "affine"), bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "weights/mlx_quantized.h"

namespace qwen_image {

// Where the groups go; see MlxGroups for their layout.
struct MlxGroupBytes {
  std::byte* packed;  // [groups, bits · group_size / 8]
  std::byte* scales;  // [groups], of the type `dtype` below
  std::byte* biases;  // [groups]
};

// The values, all finite, are numbers of `dtype` (F32, F16 or BF16): MLX computes in float32 whatever their
// type, and rounds scale and bias to it at the end, after the q were chosen.
void QuantizeMlx(const float* values /*[groups, group_size]*/, int64_t groups, MlxQuantization quantization,
                 DType dtype, const MlxGroupBytes& to);

}  // namespace qwen_image

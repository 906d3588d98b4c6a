// How a converted tensor is written, and what a user calls it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "files/safetensors_writer.h"
#include "weights/mlx_quantized.h"

namespace qwen_image::convert {

struct Encoding {
  DType dtype = DType::kBF16;  // of the values; of the scales and biases if quantized
  MlxQuantization mlx = {};    // bits 0: plain numbers

  bool quantized() const { return mlx.bits != 0; }
  std::string Name() const;  // "BF16", "4-bit g64"
  bool operator==(const Encoding&) const = default;
};

// The tensors that a file holds for one of this encoding, in the order in which they are written: itself, and
// for "X.weight" that is quantized also "X.scales" and "X.biases".
std::vector<PlannedTensor> StoredTensors(const std::string& name, const Shape& shape,
                                         const Encoding& encoding);

// What a user asks for: "f32", "f16", "bf16", "q8" … or "keep".
struct Target {
  DType dtype = DType::kBF16;
  int bits = 0;       // 0: plain numbers
  bool keep = false;  // as the source has it

  bool quantized() const { return bits != 0; }
};
Target ParseTarget(std::string_view text);  // throws Error kUsage

}  // namespace qwen_image::convert

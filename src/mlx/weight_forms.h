// What becomes of a file's weights on MLX. Decided here for the layers (layers.cc), and counted here for
// users; it takes nothing of MLX itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "kernels/weight_matrix.h"
#include "ops/linear.h"

namespace qwen_image {

struct MlxForm {
  enum class Kind {
    kAsInFile,   // MLX's groups, and plain numbers
    kRegrouped,  // integers with scales of another tool, in groups of a size that MLX has: the same values
    kDecoded,    // all else (fp8, groups of 16): plain numbers of the activations' type
  } kind = Kind::kAsInFile;
  int bits = 0, group_size = 0;  // of MLX's groups; 0: plain numbers
};
MlxForm MlxFormOf(const WeightMatrix& w);

// The same weights of linear layers, by kind.
struct MlxWeightUse {
  struct Share {
    int64_t matrices = 0, file_bytes = 0, device_bytes = 0;
    std::map<std::string, int64_t> formats;  // as files call them, with the number of matrices
  };
  Share as_in_file, regrouped, decoded;

  int64_t device_bytes() const {
    return as_in_file.device_bytes + regrouped.device_bytes + decoded.device_bytes;
  }
};
// What is decoded has 16 bits in layers of fast precision, else 32.
MlxWeightUse UseOfWeights(std::span<const Linear* const> layers);

// A sentence about what is not copied as it is; empty if everything is.
std::string DescribeWeights(const MlxWeightUse& use);

}  // namespace qwen_image

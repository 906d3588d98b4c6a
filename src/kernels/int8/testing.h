// What the tests of products in 8 bits share: a loop over kernels, and weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/block_coding.h"
#include "kernels/int8/tile.h"
#include "kernels/mlx_groups.h"
#include "kernels/testing.h"
#include "kernels/weight_matrix.h"

namespace qwen_image::testing {

// Runs the test body once for every kernel.
template <class Body>
void ForEachKernel(const Body& body) {
  for (const Int8Kernel* kernel : Int8Kernels()) {
    SCOPED_TRACE(kernel->name);
    ChooseInt8Kernel(kernel);
    body();
  }
  ChooseInt8Kernel(nullptr);
}

inline std::vector<std::byte> RandomBytes(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(engine());
  return bytes;
}

// A matrix of random integers. Their bytes, scales and biases start at odd addresses, as in files.
struct Weights {
  std::vector<std::byte> packed, scales, biases;
  WeightMatrix matrix;
  std::vector<float> row_scales = {};
};

inline Weights MlxWeights(int64_t rows, int64_t cols, int bits, int group) {
  Weights w;
  const auto groups = static_cast<size_t>(rows * cols / group);
  w.packed = RandomBytes(static_cast<size_t>(rows * cols * bits / 8) + 1, 3);
  const std::vector<float> scales = Random(static_cast<int64_t>(groups), 4, 0.01f);
  const std::vector<float> biases = Random(static_cast<int64_t>(groups), 5, 0.05f);
  w.scales.resize(groups * 4 + 1);
  w.biases.resize(groups * 4 + 1);
  std::memcpy(w.scales.data() + 1, scales.data(), groups * 4);
  std::memcpy(w.biases.data() + 1, biases.data(), groups * 4);
  const auto coding = MakeMlxCoding({.bits = bits,
                                     .group_size = group,
                                     .packed = w.packed.data() + 1,
                                     .scales = w.scales.data() + 1,
                                     .biases = w.biases.data() + 1});
  w.matrix = {w.packed.data() + 1, DType::kF32, rows, cols, coding};
  return w;
}

// Blocks of bytes that give scales between 0.01 and 0.5 wherever a scale in F16 stands.
inline Weights BlockWeights(int64_t rows, int64_t cols, const BlockFormat& format,
                            std::vector<float> scales = {}) {
  Weights w;
  w.packed = RandomBytes(static_cast<size_t>(rows * cols / format.values * format.bytes) + 1, 3);
  for (std::byte& b : w.packed) b = (b & std::byte{0x1f}) | std::byte{0x20};
  w.matrix = {w.packed.data() + 1, DType::kF32, rows, cols, MakeBlockCoding(format, scales)};
  w.row_scales = std::move(scales);
  return w;
}

}  // namespace qwen_image::testing

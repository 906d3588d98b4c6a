// y = x · wᵀ with x in 8 bits and w in up to 8: several times the speed of single precision.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "core/threads.h"
#include "core/view.h"
#include "kernels/int8/activations.h"
#include "kernels/weight_matrix.h"

namespace qwen_image {

// One product, and what is done with its sums before they leave the registers.
struct Int8Product {
  const Int8Activations* x = nullptr;  // [rows, w.cols], in groups of Int8GroupOf(w), or of a part of it
  const WeightMatrix* w = nullptr;
  const float* bias = nullptr;  // [w.rows], or none
  bool gelu = false;            // GeluTanh(x · wᵀ + bias)
  const float* gate = nullptr;  // [w.rows], or none: y += gate · (…) instead of y = …
  // Rows from this one on have another gate.
  int64_t late_row = std::numeric_limits<int64_t>::max();
  const float* late_gate = nullptr;  // [w.rows]
  bool add = false;                  // where there is no gate: y += … instead of y = …
  View y = {};                       // [rows, w.rows]
};

// All of them at once, so that all threads are busy until the last one is done. No y may be another's.
void Int8MatMul(std::span<const Int8Product> products, ThreadPool& pool);

}  // namespace qwen_image

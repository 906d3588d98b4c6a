// Rows of floats in memory that another object owns. From one row to the next it is `stride` floats, so that
// a slice of tokens or of heads is a view like any other.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace qwen_image {

template <typename Float>
struct BasicView {
  BasicView() = default;
  BasicView(Float* d, int64_t r, int64_t c) : BasicView(d, r, c, c) {}
  BasicView(Float* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  // A view that may be written to is also one that may be read.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator BasicView<const Float>() const { return {data, rows, cols, stride}; }

  Float* row(int64_t i) const { return data + i * stride; }
  BasicView Rows(int64_t first, int64_t count) const { return {row(first), count, cols, stride}; }
  BasicView Cols(int64_t first, int64_t count) const { return {data + first, rows, count, stride}; }
  int64_t size() const { return rows * cols; }
  bool dense() const { return stride == cols || rows <= 1; }

  Float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
};
using View = BasicView<float>;
using ConstView = BasicView<const float>;

// A tensor as a matrix of its last dimension.
inline View ViewOf(Tensor& x) { return {x.data(), x.size() / x.shape().back(), x.shape().back()}; }
inline ConstView ViewOf(const Tensor& x) { return {x.data(), x.size() / x.shape().back(), x.shape().back()}; }

}  // namespace qwen_image

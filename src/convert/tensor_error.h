// How far converted values are from the source's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace qwen_image::convert {

struct TensorError {
  int64_t count = 0;
  double max_abs = 0;
  double squared_error = 0;   // Σ (converted − source)²
  double squared_source = 0;  // Σ source²

  void Add(const TensorError& other) {
    count += other.count;
    max_abs = std::max(max_abs, other.max_abs);
    squared_error += other.squared_error;
    squared_source += other.squared_source;
  }
  // ‖converted − source‖ / ‖source‖
  double relative_rmse() const {
    if (squared_error == 0) return 0;
    return std::sqrt(squared_error / squared_source);
  }
};

}  // namespace qwen_image::convert

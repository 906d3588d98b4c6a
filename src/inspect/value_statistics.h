// Statistics of a stream of values; parts that were measured apart can be merged.
#pragma once

#include <cstdint>
#include <limits>

namespace qwen_image::inspect {

// min, max, mean and std are over the finite values; min > max if there are none.
struct ValueStatistics {
  int64_t count = 0;  // all values
  int64_t nan = 0, inf = 0, zeros = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double squares = 0;  // Σ (value − mean)²

  void Add(const double* values, int64_t count);
  void Merge(const ValueStatistics& other);

  int64_t finite() const { return count - nan - inf; }
  double std() const;  // of the population, as torch's std(correction=0)
  double zero_share() const;
  double max_abs() const;
  bool constant() const { return count > 0 && min == max && finite() == count; }
};

}  // namespace qwen_image::inspect

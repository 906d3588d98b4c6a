// Compares one tensor with another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::compare {

// One side of a comparison. `read` may be called for any part, and more than once for the same.
struct TensorSource {
  Shape shape;
  std::string dtype;
  bool is_float = true;
  int64_t count = 0;
  std::function<void(int64_t begin, int64_t count, double* out)> read;
};
TensorSource SourceOf(const record::TensorSet& set, const record::TensorInfo& tensor);
TensorSource SourceOf(const float* data, const Shape& shape);
TensorSource SourceOf(const int64_t* data, const Shape& shape);

// Whether two shapes differ at most in axes of 1 at the front: a dump without the axis of the batch.
bool SameButForLeadingOnes(const Shape& a, const Shape& b);

// Shapes may differ in axes of 1 at the front. `choose` gets the reference's figures, because a criterion may
// be relative to them. The reference is read twice.
TensorComparison CompareTensor(const std::string& name, const TensorSource& ref, const TensorSource& run,
                               const std::function<Criterion(const TensorStats& ref)>& choose);

}  // namespace qwen_image::compare

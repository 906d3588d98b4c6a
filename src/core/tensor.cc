#include "core/tensor.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"

namespace qwen_image {

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t d : shape) {
    if (d < 0 || (d > 0 && count > std::numeric_limits<int64_t>::max() / d)) {
      Fail(ErrorKind::kInternal, "impossible tensor shape {}", ToString(shape));
    }
    count *= d;
  }
  return count;
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Tensor::Tensor(Shape shape) : shape_(std::move(shape)), size_(ElementCount(shape_)) {
  constexpr size_t kAlignment = 64;
  const size_t bytes =
      (static_cast<size_t>(size_) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, std::max(bytes, kAlignment))));
  if (!data_)
    Fail(ErrorKind::kOutOfMemory, "cannot allocate {} bytes for a tensor of shape {}", bytes,
         ToString(shape_));
}

Tensor Tensor::Clone() const {
  Tensor copy(shape_);
  std::copy_n(data(), size_, copy.data());
  return copy;
}

void Tensor::Reshape(Shape shape) {
  if (ElementCount(shape) != size_) {
    Fail(ErrorKind::kInternal, "cannot reshape {} to {}", ToString(shape_), ToString(shape));
  }
  shape_ = std::move(shape);
}

}  // namespace qwen_image

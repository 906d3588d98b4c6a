#include "core/tensor.h"

#include <sys/mman.h>

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

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Memory of at least a huge page begins at one and asks for them: matrix products step through rows that are
// pages apart, and every page is one entry of the processor's table of pages. A refusal does no harm.
float* Allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* const data =
      std::aligned_alloc(alignment, std::max<size_t>(1, (bytes + alignment - 1) / alignment) * alignment);
#ifdef MADV_HUGEPAGE
  if (data && bytes >= kHugePage) (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return static_cast<float*>(data);
}

}  // namespace

Tensor::Tensor(Shape shape) : shape_(std::move(shape)), size_(ElementCount(shape_)) {
  const size_t bytes = static_cast<size_t>(size_) * sizeof(float);
  data_.reset(Allocate(bytes));
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

// Tensor: a dense row-major block of floats in torch's shape order, 64-byte aligned, not initialised.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace qwen_image {

using Shape = std::vector<int64_t>;

int64_t ElementCount(const Shape& shape);
std::string ToString(const Shape& shape);  // "[1, 64, 128]"

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Shape shape);

  const Shape& shape() const { return shape_; }
  int64_t dim(size_t i) const { return shape_[i]; }
  int64_t size() const { return size_; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  float& operator[](int64_t i) { return data_.get()[i]; }
  float operator[](int64_t i) const { return data_.get()[i]; }

  // Start of row `i` when the tensor is seen as a matrix of its last dimension.
  float* row(int64_t i) { return data() + i * shape_.back(); }
  const float* row(int64_t i) const { return data() + i * shape_.back(); }

  Tensor Clone() const;
  void Reshape(Shape shape);  // the number of elements must stay the same

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  Shape shape_;
  int64_t size_ = 0;
  std::unique_ptr<float[], Free> data_;
};

}  // namespace qwen_image

// The activations of a pass. Operations make them, read them and write to them; only they know where the
// values are.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "core/view.h"

namespace qwen_image {

// Values on a device that is not this program's own memory.
struct DeviceValues {
  virtual ~DeviceValues() = default;
};

// A handle. Of two handles to the same values only one may be written to: whether the other one sees that
// depends on the device.
struct Array {
  Shape shape;                                 // torch's order
  View view;                                   // on the CPU: rows of the last dimension
  std::shared_ptr<Tensor> memory;              // what `view` points into, if it belongs to the array
  std::shared_ptr<const DeviceValues> values;  // on other devices

  int64_t dim(size_t i) const { return shape[i]; }
  int64_t cols() const { return shape.back(); }
  int64_t rows() const { return ElementCount(shape) / shape.back(); }
};

}  // namespace qwen_image

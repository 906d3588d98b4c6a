// What a conversion made of each tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/plan.h"
#include "convert/tensor_error.h"
#include "files/json.h"

namespace qwen_image::convert {

struct ConvertedTensor {
  std::string component, name, role;
  Shape shape;
  std::string from, to;  // encodings: "BF16", "4-bit g64"
  std::string note;
  int64_t bytes = 0;
  TensorError error;

  double bits_per_weight() const;
};

ConvertedTensor Converted(Component component, const TensorPlan& plan, const TensorError& error);

Json ConvertedTensorJson(const ConvertedTensor& tensor);
// The reverse. Throws Error kBadInput if it is none.
ConvertedTensor ConvertedTensorFromJson(const Json& json);

struct RoleTotal {
  std::string component, role;
  size_t tensors = 0;
  int64_t bytes = 0;
  TensorError error;
};
std::vector<RoleTotal> TotalsByRole(std::span<const ConvertedTensor> tensors);  // by component and role
RoleTotal TotalOf(std::span<const ConvertedTensor> tensors);

// The tensors with the largest relative error, largest first; exact ones do not appear.
std::vector<ConvertedTensor> WorstTensors(std::span<const ConvertedTensor> tensors, size_t count);

Json ConversionJson(std::span<const ConvertedTensor> tensors, const std::vector<std::string>& notes);

}  // namespace qwen_image::convert

// What the tests of conversions share: small weight files.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "files/safetensors_writer.h"

namespace qwen_image::convert {

struct SourceTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<float> values;  // empty: random ones
};

inline std::vector<float> RandomValues(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline void WriteSource(const std::filesystem::path& path, const std::vector<SourceTensor>& tensors) {
  std::vector<PlannedTensor> plan;
  for (const SourceTensor& tensor : tensors) plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, plan, {});
  unsigned seed = 1;
  for (const SourceTensor& tensor : tensors) {
    const int64_t count = ElementCount(tensor.shape);
    const std::vector<float> values = tensor.values.empty() ? RandomValues(count, seed++) : tensor.values;
    std::vector<std::byte> bytes(static_cast<size_t>(count) * SizeOf(tensor.dtype));
    ConvertFromFloat(values.data(), tensor.dtype, count, bytes.data());
    writer.Append(bytes);
  }
  writer.Finish();
}

}  // namespace qwen_image::convert

// What machines tell each other, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/fail.h"
#include "core/tensor.h"

namespace qwen_image::team {

class Writer {
 public:
  template <typename Plain>
  requires std::is_trivially_copyable_v<Plain>
  void Put(const Plain& value) { Append(std::as_bytes(std::span(&value, 1))); }
  template <typename Plain>
  void PutAll(std::span<const Plain> values) {
    Put(static_cast<uint64_t>(values.size()));
    Append(std::as_bytes(values));
  }
  void Put(const std::string& text) { PutAll(std::span<const char>(text)); }
  void Put(const Tensor& tensor) {
    PutAll(std::span<const int64_t>(tensor.shape()));
    Append(std::as_bytes(std::span(tensor.data(), static_cast<size_t>(tensor.size()))));
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void Append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Plain>
  requires std::is_trivially_copyable_v<Plain> Plain Get() {
    Plain value;
    std::memcpy(&value, Take(sizeof(Plain)).data(), sizeof(Plain));
    return value;
  }
  template <typename Plain>
  std::vector<Plain> GetAll() {
    const auto count = Get<uint64_t>();
    if (count > rest_.size() / sizeof(Plain)) FailShort();
    std::vector<Plain> values(count);
    const std::span<const std::byte> bytes = Take(count * sizeof(Plain));
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string GetText() {
    const std::vector<char> text = GetAll<char>();
    return {text.begin(), text.end()};
  }
  Tensor GetTensor() {
    const Shape shape = GetAll<int64_t>();
    uint64_t values = 1;
    for (const int64_t side : shape) {
      if (side < 0 || (side > 0 && values > rest_.size() / static_cast<uint64_t>(side))) FailShort();
      values *= static_cast<uint64_t>(side);
    }
    const std::span<const std::byte> bytes = Take(values * sizeof(float));
    Tensor tensor(shape);
    if (values > 0) std::memcpy(tensor.data(), bytes.data(), bytes.size());
    return tensor;
  }

 private:
  [[noreturn]] static void FailShort() {
    qwen_image::Fail(ErrorKind::kInternal, "a message from another machine is shorter than it says");
  }
  std::span<const std::byte> Take(uint64_t count) {
    if (count > rest_.size()) FailShort();
    const std::span<const std::byte> taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::span<const std::byte> rest_;
};

}  // namespace qwen_image::team

// What users call the values of the enums in qwen_image.h: one table for each, read by every surface.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qwen_image/qwen_image.h"

namespace qwen_image {

template <typename Value>
struct Named {
  Value value;
  const char* name;
};

inline constexpr Named<Precision> kPrecisions[] = {{Precision::kExact, "exact"}, {Precision::kFast, "fast"}};
inline constexpr Named<Device> kDevices[] = {
    {Device::kAuto, "auto"}, {Device::kCpu, "cpu"}, {Device::kGpu, "gpu"}, {Device::kMlxCpu, "mlx-cpu"}};
inline constexpr Named<GenerateRequest::Tiling> kTilings[] = {{GenerateRequest::Tiling::kAuto, "auto"},
                                                              {GenerateRequest::Tiling::kOn, "on"},
                                                              {GenerateRequest::Tiling::kOff, "off"}};
inline constexpr Named<Split> kSplits[] = {{Split::kSequence, "sequence"}, {Split::kLayers, "layers"}};

template <typename Value>
constexpr std::span<const Named<Value>> NamesOf();
template <>
constexpr std::span<const Named<Precision>> NamesOf() {
  return kPrecisions;
}
template <>
constexpr std::span<const Named<Device>> NamesOf() {
  return kDevices;
}
template <>
constexpr std::span<const Named<GenerateRequest::Tiling>> NamesOf() {
  return kTilings;
}
template <>
constexpr std::span<const Named<Split>> NamesOf() {
  return kSplits;
}

template <typename Value>
requires requires { NamesOf<Value>(); }
constexpr std::string_view NameOf(Value value) {
  for (const Named<Value>& entry : NamesOf<Value>()) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

template <typename Value>
constexpr std::optional<Value> ParseName(std::string_view name) {
  for (const Named<Value>& entry : NamesOf<Value>()) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

template <typename Value>
std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const Named<Value>& entry : NamesOf<Value>()) names.emplace_back(entry.name);
  return names;
}

}  // namespace qwen_image

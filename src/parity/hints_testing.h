// What the tests of the hints share: synthetic tensors and a context made of them.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parity/hints.h"

namespace qwen_image {

using NamedTensors = std::map<std::string, HintTensor>;

// Normal noise around a mean that differs from channel to channel, as activations have it.
inline HintTensor RandomTensor(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  HintTensor tensor{shape, std::vector<float>(static_cast<size_t>(ElementCount(shape)))};
  std::vector<float> means(static_cast<size_t>(shape.back()));
  for (float& mean : means) mean = normal(generator);
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = means[i % means.size()] + normal(generator);
  return tensor;
}

// `tensor` with element i replaced by value(i).
template <typename Value>
HintTensor Changed(HintTensor tensor, const Value& value) {
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = static_cast<float>(value(static_cast<int64_t>(i)));
  return tensor;
}

// Relative noise of the size of a bf16 rounding, 2^−9.
inline HintTensor WithBf16Noise(HintTensor tensor, unsigned seed = 99) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f / 512, 1.0f / 512);
  for (float& v : tensor.values) v *= 1 + uniform(generator);
  return tensor;
}

// The hints for `name`, whose reference is among `reference`.
inline std::vector<Hint> HintsFor(const std::string& name, const NamedTensors& reference,
                                  const HintTensor& run) {
  HintContext context;
  context.ref = [&](const std::string& other) -> std::optional<HintTensor> {
    const auto found = reference.find(other);
    return found == reference.end() ? std::nullopt : std::optional(found->second);
  };
  context.run = [&](const std::string&) -> std::optional<HintTensor> { return run; };
  for (const auto& [other, tensor] : reference) context.names.push_back(other);
  TensorComparison failed;
  failed.name = name;
  return FindHints(failed, context);
}

inline std::string FirstKind(const std::vector<Hint>& hints) { return hints.empty() ? "" : hints[0].kind; }

}  // namespace qwen_image

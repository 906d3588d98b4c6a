// What the tests of the hints share: synthetic tensors and a context made of them.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parity/hints/causes.h"

namespace qwen_image::hints {

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

// An attention in which tokens [tokens, heads, head_dim] see only some others.
struct WrongAttention {
  int64_t heads = 0, head_dim = 0;
  double scale = 1;
  std::function<bool(int64_t query, int64_t key)> sees;

  std::vector<float> Compute(const std::vector<float>& q, const std::vector<float>& k,
                             const std::vector<float>& v) const {
    const int64_t dim = heads * head_dim, tokens = static_cast<int64_t>(q.size()) / dim;
    std::vector<float> out(q.size());
    for (int64_t row = 0; row < tokens * heads; ++row) {
      const int64_t begin = row * head_dim, head = row % heads * head_dim;
      const float* query = q.data() + begin;
      std::vector<double> sums(static_cast<size_t>(head_dim));
      double total = 0;
      for (int64_t key = 0; key < tokens; ++key) {
        if (!sees(row / heads, key)) continue;
        const float *to = k.data() + key * dim + head, *value = v.data() + key * dim + head;
        double dot = 0;
        for (int64_t d = 0; d < head_dim; ++d) dot += static_cast<double>(query[d]) * to[d];
        const double weight = std::exp(scale * dot);
        total += weight;
        for (int64_t d = 0; d < head_dim; ++d) sums[static_cast<size_t>(d)] += weight * value[d];
      }
      for (int64_t d = 0; d < head_dim; ++d)
        out[static_cast<size_t>(begin + d)] = static_cast<float>(sums[static_cast<size_t>(d)] / total);
    }
    return out;
  }
};

// The hints for `name`, whose reference is among `reference`. Without a family it is recognized by the names.
inline std::vector<compare::Hint> HintsFor(const std::string& name, const NamedTensors& reference,
                                           const HintTensor& run, const CheckpointNames* family = nullptr) {
  HintContext context;
  context.family = family;
  context.ref = [&](const std::string& other) -> std::optional<HintTensor> {
    const auto found = reference.find(other);
    return found == reference.end() ? std::nullopt : std::optional(found->second);
  };
  context.run = [&](const std::string&) -> std::optional<HintTensor> { return run; };
  for (const auto& [other, tensor] : reference) context.names.push_back(other);
  compare::TensorComparison failed;
  failed.name = name;
  return FindHints(failed, context);
}

inline std::string FirstKind(const std::vector<compare::Hint>& hints) {
  return hints.empty() ? "" : hints[0].kind;
}

}  // namespace qwen_image::hints

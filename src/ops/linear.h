// torch.nn.Linear as its weights lie in files: what operations multiply with.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/int8/activations.h"
#include "kernels/int8/weights.h"
#include "kernels/weight_matrix.h"
#include "qwen_image/qwen_image.h"
#include "weights/binder.h"
#include "weights/updates.h"

namespace qwen_image {

struct Linear {
  WeightMatrix weight;      // [out, in]
  std::vector<float> bias;  // [out], or empty
  std::vector<LowRankUpdate> updates = {};
  // Fast: a device may round the layer's inputs to fewer bits.
  Precision precision = Precision::kExact;
  int int8_group = 0;  // above 0: the CPU multiplies in 8 bits, with activations in groups of this many
  Int8Fineness fineness = Int8Fineness::kWhereNeeded;

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
};

enum class Bias { kYes, kNo };

// Fast: in 8 bits, if the weights are integers with scales.
inline Linear BindLinear(WeightBinder& binder, const std::string& name, int64_t out, int64_t in,
                         Bias bias = Bias::kYes, Precision precision = Precision::kExact) {
  Linear linear;
  linear.weight = binder.Matrix(name + ".weight", {out, in});
  linear.precision = precision;
  if (precision == Precision::kFast) linear.int8_group = Int8GroupOf(linear.weight);
  if (bias == Bias::kYes) linear.bias = binder.Floats(name + ".bias", {out});
  linear.updates = binder.Updates(name, out, in);
  return linear;
}

// For inputs of many small and few large values, such as the hidden layer of a gated MLP: in groups of 64
// they hardly bear 8 bits, so that most rows would need 16. In groups of 32 they do.
inline Linear InSmallGroups(Linear linear) {
  constexpr int kSmallGroup = 32;
  if (linear.int8_group % kSmallGroup == 0) linear.int8_group = std::min(linear.int8_group, kSmallGroup);
  return linear;
}

}  // namespace qwen_image

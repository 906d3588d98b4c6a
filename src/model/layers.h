// The layers that all components share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/int8/matmul.h"
#include "kernels/int8/weights.h"
#include "kernels/kernels.h"
#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"
#include "weights/binder.h"

namespace qwen_image {

// What a stage needs to compute: threads, whether to stop, and whom to tell how far it is.
struct Compute {
  ThreadPool& pool;
  const CancelFlag& cancel;
  std::function<void(double fraction)> on_progress = {};

  // The same for pass `pass` of `passes` equal ones: its progress is a share of theirs.
  Compute ForPass(int64_t pass, int64_t passes) const {
    if (!on_progress) return *this;
    return {pool, cancel, [report = on_progress, pass, passes](double fraction) {
              report((static_cast<double>(pass) + fraction) / static_cast<double>(passes));
            }};
  }

  // To be called before each of a stage's `total` parts.
  void Continue(size_t part, size_t total) const {
    cancel.ThrowIfCancelled();
    if (on_progress) on_progress(static_cast<double>(part) / static_cast<double>(total));
  }
};

// torch.nn.Linear
struct Linear {
  WeightMatrix weight;      // [out, in]
  std::vector<float> bias;  // [out], or empty
  std::vector<LowRankUpdate> updates = {};
  int int8_group = 0;  // above 0: the product is taken in 8 bits, with activations in groups of this many
  Int8Fineness fineness = Int8Fineness::kWhereNeeded;

  // x [.., in] → y [.., out]; `rows` is the product of the leading dimensions.
  void operator()(const float* x, int64_t rows, float* y, ThreadPool& pool) const {
    if (int8_group > 0) {
      Int8Activations quantized;
      quantized.Quantize(
          rows, weight.cols, int8_group, fineness, [&](int64_t row, float*) { return x + row * weight.cols; },
          pool);
      const Int8Product product = ProductOf(quantized, y);
      Int8MatMul({&product, 1}, pool);
    } else {
      MatMul(x, rows, weight, bias_data(), y, pool);
    }
    for (const LowRankUpdate& update : updates) AddUpdate(update, x, rows, y, pool);
  }

  // For those who have the input in 8 bits already, and add no updates.
  Int8Product ProductOf(const Int8Activations& x, float* y) const {
    return {.x = &x, .w = &weight, .bias = bias_data(), .y = y};
  }

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }

  // y += factor · (x · downᵀ) · upᵀ: the product of the two small matrices is never formed.
  static void AddUpdate(const LowRankUpdate& update, const float* x, int64_t rows, float* y,
                        ThreadPool& pool) {
    Tensor hidden({rows, update.down.rows});
    MatMul(x, rows, update.down, nullptr, hidden.data(), pool);
    for (int64_t i = 0; i < hidden.size(); ++i) hidden[i] *= update.factor;
    AddMatMul(hidden.data(), rows, update.up, y, pool);
  }
};

enum class Bias { kYes, kNo };

// Fast: in 8 bits, if the weights are integers with scales.
inline Linear BindLinear(WeightBinder& binder, const std::string& name, int64_t out, int64_t in,
                         Bias bias = Bias::kYes, Precision precision = Precision::kExact) {
  Linear linear;
  linear.weight = binder.Matrix(name + ".weight", {out, in});
  if (precision == Precision::kFast) linear.int8_group = Int8GroupOf(linear.weight);
  if (bias == Bias::kYes) linear.bias = binder.Floats(name + ".bias", {out});
  linear.updates = binder.Updates(name, out, in);
  return linear;
}

}  // namespace qwen_image

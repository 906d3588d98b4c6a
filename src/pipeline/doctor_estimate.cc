#include "pipeline/doctor_estimate.h"

#include <algorithm>
#include <chrono>

namespace qwen_image {
namespace {

constexpr int64_t kTypicalPromptTokens = 64;

// Operations a second of the layer as it is computed.
double SpeedOf(const Linear& layer, ThreadPool& pool) {
  constexpr int64_t kTokens = 256;  // keep all threads busy
  const WeightMatrix& matrix = layer.weight;
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  const Array x = ops->New({kTokens, matrix.cols});
  std::fill_n(x.view.data, x.view.size(), 0.5f);
  Array y = ops->New({kTokens, matrix.rows});
  const auto multiply = [&] { ops->Multiply(layer, x, y); };
  multiply();  // brings the weights into memory
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kPatience(0.3);
  const auto start = Clock::now();
  std::chrono::duration<double> taken{};
  int64_t runs = 0;
  do {
    multiply();
    ++runs;
    taken = Clock::now() - start;
  } while (taken < kPatience);
  return 2.0 * static_cast<double>(runs * kTokens * matrix.rows * matrix.cols) / taken.count();
}

}  // namespace

StepEstimate::StepEstimate(const Denoiser& denoiser, ThreadPool& pool) : denoiser_(denoiser) {
  Linear layer = denoiser.TypicalLayer();
  int8_ = layer.int8_group > 0;
  linear_speed_ = attention_speed_ = SpeedOf(layer, pool);
  if (!int8_) return;
  layer.int8_group = 0;  // attention is computed in single precision whatever the weights are
  attention_speed_ = SpeedOf(layer, pool);
}

double StepEstimate::Seconds(TokenGrid grid) const {
  const Denoiser::Work work = denoiser_.WorkOf(grid, kTypicalPromptTokens);
  return work.linear / linear_speed_ + work.attention / attention_speed_;
}

}  // namespace qwen_image

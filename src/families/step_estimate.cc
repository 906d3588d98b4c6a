#include "families/step_estimate.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace qwen_image {
namespace {

constexpr int64_t kTypicalPromptTokens = 64;

// How many operations a second `compute` does, which does so many each time.
template <class Computation>
double SpeedOf(double operations, const Computation& compute) {
  compute();  // brings weights and buffers into memory
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kPatience(0.3);
  const auto start = Clock::now();
  std::chrono::duration<double> taken{};
  int64_t runs = 0;
  do {
    compute();
    ++runs;
    taken = Clock::now() - start;
  } while (taken < kPatience);
  return static_cast<double>(runs) * operations / taken.count();
}

double SpeedOfLayer(const Linear& layer, Ops& ops) {
  constexpr int64_t kTokens = 256;  // keep all threads busy
  const WeightMatrix& matrix = layer.weight;
  const Array x = ops.New({kTokens, matrix.cols});
  std::fill_n(x.view.data, x.view.size(), 0.5f);
  Array y = ops.New({kTokens, matrix.rows});
  return SpeedOf(2.0 * static_cast<double>(kTokens * matrix.rows * matrix.cols),
                 [&] { ops.Multiply(layer, x, y); });
}

double SpeedOfAttention(bool int8, int threads, Ops& ops) {
  constexpr int64_t kTokens = 1024, kHeadDim = 128;
  const int64_t heads = 2 * threads;
  const auto random = [&](uint32_t seed) {
    Array x = ops.New({1, kTokens, heads * kHeadDim});
    std::minstd_rand engine(seed);
    std::normal_distribution<float> normal;
    std::generate_n(x.view.data, x.view.size(), [&] { return normal(engine); });
    return Joint{x};
  };
  const Joint q = random(1), k = random(2), v = random(3);
  Joint out{ops.New({1, kTokens, heads * kHeadDim})};
  const AttentionInput input{
      .q = &q, .k = &k, .v = &v, .heads = heads, .kv_heads = heads, .head_dim = kHeadDim, .int8 = int8};
  return SpeedOf(4.0 * static_cast<double>(kTokens * kTokens * heads * kHeadDim),
                 [&] { ops.Attend(input, out, Tap()); });
}

}  // namespace

StepEstimate::StepEstimate(const Denoiser& denoiser, ThreadPool& pool) : denoiser_(denoiser) {
  const Linear layer = denoiser.TypicalLayer();
  int8_ = layer.int8_group > 0;
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  linear_speed_ = SpeedOfLayer(layer, *ops);
  attention_speed_ = SpeedOfAttention(int8_, pool.size(), *ops);
}

double StepEstimate::Seconds(TokenGrid grid) const {
  const Denoiser::Work work = WorkOf(grid);
  return work.linear / linear_speed_ + work.attention / attention_speed_;
}

Denoiser::Work StepEstimate::WorkOf(TokenGrid grid) const {
  return denoiser_.WorkOf(grid, kTypicalPromptTokens);
}

}  // namespace qwen_image

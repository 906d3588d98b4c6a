#include "pipeline/doctor_estimate.h"

#include <chrono>
#include <vector>

#include "kernels/kernels.h"

namespace qwen_image {
namespace {

constexpr int64_t kTypicalPromptTokens = 64;

}  // namespace

StepEstimate::StepEstimate(const Transformer& transformer, ThreadPool& pool) : config_(transformer.config()) {
  // The largest matrix of a block, at a number of tokens that keeps all threads busy.
  constexpr int64_t kTokens = 256;
  const WeightMatrix matrix =
      transformer.store().Find("transformer_blocks.0.img_mlp.net.0.proj.weight")->Matrix();
  const std::vector<float> x(static_cast<size_t>(kTokens * matrix.cols), 0.5f);
  std::vector<float> y(static_cast<size_t>(kTokens * matrix.rows));
  const auto multiply = [&] {
    MatMul({x.data(), kTokens, matrix.cols}, matrix, nullptr, {y.data(), kTokens, matrix.rows}, pool);
  };
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
  speed_ = 2.0 * static_cast<double>(runs * kTokens * matrix.rows * matrix.cols) / taken.count();
}

double StepEstimate::Seconds(TokenGrid grid) const {
  const auto tokens = static_cast<double>(grid.height * grid.width + kTypicalPromptTokens);
  const auto width = static_cast<double>(config_.inner_dim());
  // A token passes q, k, v, out and an MLP of four times the width: 12 squares; attention looks twice at all.
  const double linear = 2 * tokens * 12 * width * width;
  const double attention = 4 * tokens * tokens * width;
  return static_cast<double>(config_.num_layers) * (linear + attention) / speed_;
}

}  // namespace qwen_image

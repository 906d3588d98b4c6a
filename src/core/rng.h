// torch's CPU generator: the same seed gives the same numbers as torch.Generator("cpu").manual_seed(seed).
#pragma once

#include <cstdint>
#include <optional>
#include <random>

namespace qwen_image {

class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed);

  // torch.randn(count, generator=…) in float32.
  void Normal(float* values, int64_t count);

 private:
  void NormalOneByOne(float* values, int64_t count);
  float Uniform();     // 24 random bits, in [0, 1)
  double Uniform53();  // 53 random bits, in [0, 1)

  std::mt19937 engine_;
  std::optional<double> kept_;  // the second number of a pair, for the next draw of few numbers
};

}  // namespace qwen_image

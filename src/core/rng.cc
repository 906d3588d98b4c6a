#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace qwen_image {
namespace {

// torch turns 16 uniforms at a time into normals by Box and Muller's method: number j is paired with j + 8.
constexpr int64_t kChunk = 16;

void BoxMuller16(float* values) {
  constexpr float kTwoPi = static_cast<float>(2.0 * std::numbers::pi);
  for (int64_t j = 0; j < kChunk / 2; ++j) {
    const float u1 = 1.0f - values[j];  // (0, 1]: the logarithm stays finite
    const float u2 = values[j + kChunk / 2];
    const float radius = std::sqrt(-2.0f * std::log(u1));
    const float theta = kTwoPi * u2;
    values[j] = radius * std::cos(theta);
    values[j + kChunk / 2] = radius * std::sin(theta);
  }
}

}  // namespace

// torch seeds its Mersenne twister with the low 32 bits of the seed.
TorchGenerator::TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

float TorchGenerator::Uniform() { return static_cast<float>(engine_() & 0xffffff) * 0x1p-24f; }

double TorchGenerator::Uniform53() {
  const uint64_t high = engine_();
  const uint64_t bits = (high << 32) | engine_();
  return static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

// torch's path for fewer than 16 numbers: pairs in double precision, the second of a pair is kept for later.
void TorchGenerator::NormalOneByOne(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (kept_) {
      values[i] = static_cast<float>(*kept_);
      kept_.reset();
      continue;
    }
    const double u1 = Uniform53();
    const double u2 = Uniform53();
    const double radius = std::sqrt(-2.0 * std::log1p(-u2));
    const double theta = 2.0 * std::numbers::pi * u1;
    kept_ = radius * std::sin(theta);
    values[i] = static_cast<float>(radius * std::cos(theta));
  }
}

void TorchGenerator::Normal(float* values, int64_t count) {
  if (count < kChunk) {
    NormalOneByOne(values, count);
    return;
  }
  for (int64_t i = 0; i < count; ++i) values[i] = Uniform();
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) BoxMuller16(values + i);
  if (i < count) {  // the last 16 numbers are drawn again and overlap the chunk before
    float* tail = values + count - kChunk;
    for (int64_t j = 0; j < kChunk; ++j) tail[j] = Uniform();
    BoxMuller16(tail);
  }
}

}  // namespace qwen_image

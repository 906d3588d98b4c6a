// What the kernels' tests share: random numbers, a loop over instruction sets, comparisons that NaN cannot
// pass.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/threads.h"
#include "core/view.h"
#include "hwy/highway.h"

namespace qwen_image::testing {

inline constexpr double kUnit = 0x1p-24;  // half an ulp of 1.0f: the largest relative error of one rounding

inline std::vector<float> Random(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(engine);
  return values;
}

// Numbers as rows; by default as one.
inline View Rows(std::vector<float>& x, int64_t rows = 1) {
  return {x.data(), rows, static_cast<int64_t>(x.size()) / rows};
}
inline ConstView Rows(const std::vector<float>& x, int64_t rows = 1) {
  return {x.data(), rows, static_cast<int64_t>(x.size()) / rows};
}

// Runs the test body once for every instruction set that was compiled and that this machine has.
template <class Body>
void ForEachTarget(const Body& body) {
  const auto use = [](int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    use(target);
    body();
  }
  use(0);
}

// |got - want| ≤ tolerance(i) for every element; NaN fails.
template <class Tolerance>
void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, const Tolerance& tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    ASSERT_TRUE(error <= tolerance(static_cast<int64_t>(i)))
        << "element " << i << ": got " << got[i] << ", want " << want[i] << ", tolerance "
        << tolerance(static_cast<int64_t>(i));
  }
}

// The same bits, NaN included.
inline void ExpectSame(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << "element " << i << ": " << a[i] << " and " << b[i];
  }
}

// Σ (got - want)² / Σ want²
inline double Nmse(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    power += std::pow(static_cast<double>(want[i]), 2);
  }
  return error / power;
}

inline ThreadPool& OneThread() {
  static ThreadPool pool(1);
  return pool;
}
inline ThreadPool& FourThreads() {
  static ThreadPool pool(4);
  return pool;
}

}  // namespace qwen_image::testing

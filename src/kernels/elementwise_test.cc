#include <limits>

#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

constexpr int64_t kCounts[] = {1, 2, 7, 8, 9, 63, 100000};
constexpr int64_t kShapes[][2] = {{1, 1}, {3, 5}, {7, 24}, {9, 131}, {60, 3072}};

// Small, middling, where exp leaves the range of float, and absurd.
std::vector<float> Wide(int64_t count) {
  std::vector<float> x = Random(count, 1);
  const float scales[] = {1.0f, 4.0f, 30.0f, 1e-3f, 1e-30f, 1e5f, 1e30f};
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scales[i % std::size(scales)];
  return x;
}

// The function's own handful of roundings; exp(-z) carries the rounding of z; where exp is below the smallest
// normal float, times x up to 88 and the factor of SiluMul, the result may be 0.
double SigmoidTolerance(float want, double z) {
  return (8 + std::min(std::abs(z), 400.0)) * kUnit * std::abs(want) + 5e-36;
}

TEST(Silu, MatchesReference) {
  ForEachTarget([] {
    for (int64_t count : kCounts) {
      const std::vector<float> x = Wide(count);
      std::vector<float> got(x.size()), want(x.size());
      Silu(Rows(x), Rows(got), FourThreads());
      reference::Silu(Rows(x), Rows(want));
      ExpectNear(got, want, [&](int64_t i) { return SigmoidTolerance(want[i], 0); });
    }
  });
}

TEST(SiluMul, MatchesReference) {
  ForEachTarget([] {
    for (int64_t count : kCounts) {
      const std::vector<float> gate = Wide(count), up = Random(count, 2);
      std::vector<float> got(gate.size()), want(gate.size());
      SiluMul(Rows(gate), Rows(up), Rows(got), FourThreads());
      reference::SiluMul(Rows(gate), Rows(up), Rows(want));
      ExpectNear(got, want, [&](int64_t i) { return SigmoidTolerance(want[i], 0); });
    }
  });
}

TEST(GeluTanh, MatchesReference) {
  ForEachTarget([] {
    for (int64_t count : kCounts) {
      const std::vector<float> x = Wide(count);
      std::vector<float> got(x.size()), want(x.size());
      GeluTanh(Rows(x), Rows(got), FourThreads());
      reference::GeluTanh(Rows(x), Rows(want));
      ExpectNear(got, want, [&](int64_t i) {
        const double v = x[i];
        return SigmoidTolerance(want[i], v > 0 ? 0 : 4 * 1.6 * (v + 0.044715 * v * v * v));
      });
    }
  });
}

TEST(Gelu, MatchesReference) {
  for (int64_t count : kCounts) {
    const std::vector<float> x = Wide(count);
    std::vector<float> got(x.size()), want(x.size());
    Gelu(Rows(x), Rows(got), FourThreads());
    reference::Gelu(Rows(x), Rows(want));
    // The rounding of z counts z² times as much in erfc(z).
    ExpectNear(got, want, [&](int64_t i) {
      const double v = x[i];
      return (8 + 4 * v * v) * kUnit * std::abs(want[i]) + 1e-44;
    });
  }
}

TEST(Activations, HaveTheLimitsOfTheirFormulas) {
  const std::vector<float> x = {
      1e30f, -1e30f, 3e38f, -3e38f, 0.0f, -100.0f, std::numeric_limits<float>::quiet_NaN()};
  ForEachTarget([&] {
    for (auto* activation : {&Silu, &GeluTanh, &Gelu}) {
      std::vector<float> y(x.size());
      activation(Rows(x), Rows(y), OneThread());
      EXPECT_EQ(y[0], 1e30f);
      EXPECT_TRUE(y[1] == 0.0f && std::signbit(y[1]));
      EXPECT_EQ(y[2], 3e38f);
      EXPECT_TRUE(y[3] == 0.0f && std::signbit(y[3]));
      EXPECT_EQ(y[4], 0.0f);
      EXPECT_NEAR(y[5], 0.0f, 1e-36);
      EXPECT_TRUE(std::isnan(y[6]));
    }
  });
}

TEST(Modulate, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kShapes) {
      const std::vector<float> x = Random(rows * cols, 3, 50.0f), scale = Random(cols, 4),
                               shift = Random(cols, 5);
      std::vector<float> got = x, want(x.size());
      Modulate(Rows(got, rows), scale.data(), shift.data(), Rows(got, rows), FourThreads());  // in place
      reference::Modulate(Rows(x, rows), scale.data(), shift.data(), Rows(want, rows));
      ExpectNear(got, want, [&, c = cols](int64_t i) {
        return 3 * kUnit * (std::abs(x[i] * (1 + scale[i % c])) + std::abs(x[i]) + std::abs(shift[i % c]));
      });
    }
  });
}

TEST(AddGated, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kShapes) {
      const std::vector<float> x = Random(rows * cols, 6), gate = Random(cols, 7);
      std::vector<float> got = Random(rows * cols, 8), want = got;
      AddGated(Rows(x, rows), gate.data(), Rows(got, rows), FourThreads());
      reference::AddGated(Rows(x, rows), gate.data(), Rows(want, rows));
      ExpectNear(got, want, [&, c = cols](int64_t i) {
        return 2 * kUnit * (std::abs(want[i]) + std::abs(gate[i % c] * x[i]));
      });
    }
  });
}

TEST(Add, IsExact) {
  ForEachTarget([] {
    for (int64_t count : kCounts) {
      std::vector<float> a = Random(count, 9), want(a.size());
      const std::vector<float> b = Random(count, 10);
      reference::Add(Rows(a), Rows(b), Rows(want));
      Add(Rows(a), Rows(b), Rows(a), FourThreads());  // in place
      ExpectSame(a, want);
    }
  });
}

// A value must not depend on its neighbours, its position or the thread.
TEST(Activations, DoNotDependOnPositionOrThreads) {
  const int64_t count = 50001;
  const std::vector<float> x = Wide(count);
  ForEachTarget([&] {
    for (auto* activation : {&Silu, &GeluTanh, &Gelu}) {
      std::vector<float> one(x.size()), four = x, alone(1);
      activation(Rows(x), Rows(one), OneThread());
      activation(Rows(four), Rows(four), FourThreads());  // in place
      ExpectSame(one, four);
      for (size_t i = 0; i < x.size(); i += 997) {
        activation({&x[i], 1, 1}, Rows(alone), OneThread());
        ASSERT_EQ(alone[0], one[i]) << i;
      }
    }
  });
}

}  // namespace
}  // namespace qwen_image

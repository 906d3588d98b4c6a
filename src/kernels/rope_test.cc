#include <limits>

#include "kernels/kernels.h"
#include "kernels/kernels_testing.h"
#include "kernels/reference.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

struct Angles {
  explicit Angles(int64_t count) : cos(Random(count, 1, 100.0f)), sin(cos) {
    for (size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(sin[i]);
      sin[i] = std::sin(sin[i]);
    }
  }
  std::vector<float> cos, sin;
};

using Rope = void (*)(float*, int64_t, int64_t, int64_t, const float*, const float*, ThreadPool&);
using ReferenceRope = void (*)(float*, int64_t, int64_t, int64_t, const float*, const float*);
void DenseRopeHalves(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                     const float* sin, ThreadPool& pool) {
  RopeHalves(x, tokens, heads, head_dim, heads * head_dim, cos, sin, pool);
}

constexpr std::pair<Rope, ReferenceRope> kRopes[] = {{&RopeInterleaved, &reference::RopeInterleaved},
                                                     {&DenseRopeHalves, &reference::RopeHalves}};
constexpr int64_t kShapes[][3] = {{1, 1, 2}, {3, 2, 24}, {5, 3, 6}, {7, 2, 80}, {60, 24, 128}, {4, 1, 34}};

TEST(Rope, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rope, reference] : kRopes) {
      for (const auto& [tokens, heads, head_dim] : kShapes) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
        const Angles angles(tokens * head_dim / 2);
        const std::vector<float> x = Random(tokens * heads * head_dim, 2, 5.0f);
        std::vector<float> got = x, want = x;
        rope(got.data(), tokens, heads, head_dim, angles.cos.data(), angles.sin.data(), FourThreads());
        reference(want.data(), tokens, heads, head_dim, angles.cos.data(), angles.sin.data());
        ExpectNear(got, want, [](int64_t) { return 4 * kUnit * 5.0 * 5.0; });
      }
    }
  });
}

TEST(RmsNormRope, IsRmsNormThenRopeInterleaved) {
  ForEachTarget([] {
    for (const auto& [tokens, heads, head_dim] : kShapes) {
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
      const Angles angles(tokens * head_dim / 2);
      const std::vector<float> x = Random(tokens * heads * head_dim, 4, 5.0f), weight = Random(head_dim, 5);
      const auto fused = [&](ThreadPool& pool) {
        std::vector<float> y = x;
        RmsNormRope(y.data(), tokens, heads, head_dim, weight.data(), 1e-6f, angles.cos.data(),
                    angles.sin.data(), pool);
        return y;
      };
      std::vector<float> separate = x, want = x;
      RmsNorm(x.data(), tokens * heads, head_dim, weight.data(), 1e-6f, separate.data(), FourThreads());
      RopeInterleaved(separate.data(), tokens, heads, head_dim, angles.cos.data(), angles.sin.data(),
                      FourThreads());
      ExpectSame(fused(FourThreads()), separate);
      ExpectSame(fused(OneThread()), separate);
      reference::RmsNormRope(want.data(), tokens, heads, head_dim, weight.data(), 1e-6f, angles.cos.data(),
                             angles.sin.data());
      EXPECT_LE(Nmse(separate, want), 1e-12);
    }
  });
}

TEST(RopeHalves, LeavesWhatIsBetweenTokens) {
  ForEachTarget([] {
    for (const auto& [tokens, heads, head_dim] : kShapes) {
      const int64_t size = heads * head_dim, stride = size + 3;
      const Angles angles(tokens * head_dim / 2);
      const std::vector<float> x = Random(tokens * stride, 6);
      std::vector<float> got = x, want = x;
      RopeHalves(got.data(), tokens, heads, head_dim, stride, angles.cos.data(), angles.sin.data(),
                 FourThreads());
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t angle = t * head_dim / 2;
        RopeHalves(want.data() + t * stride, 1, heads, head_dim, size, angles.cos.data() + angle,
                   angles.sin.data() + angle, OneThread());
      }
      ExpectSame(got, want);
    }
  });
}

TEST(Rope, DoesNotDependOnThreadsAndKeepsNotANumberInItsToken) {
  const int64_t tokens = 100, heads = 9, head_dim = 80;
  const Angles angles(tokens * head_dim / 2);
  std::vector<float> x = Random(tokens * heads * head_dim, 3);
  x[(41 * heads + 4) * head_dim + 79] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    for (const auto& [rope, reference] : kRopes) {
      std::vector<float> one = x, four = x;
      rope(one.data(), tokens, heads, head_dim, angles.cos.data(), angles.sin.data(), OneThread());
      rope(four.data(), tokens, heads, head_dim, angles.cos.data(), angles.sin.data(), FourThreads());
      ExpectSame(one, four);
      int64_t poisoned = 0;
      for (size_t i = 0; i < one.size(); ++i) {
        if (!std::isnan(one[i])) continue;
        ++poisoned;
        ASSERT_EQ(i / head_dim, 41 * heads + 4);
      }
      EXPECT_EQ(poisoned, 2);  // the pair
    }
  });
}

}  // namespace
}  // namespace qwen_image

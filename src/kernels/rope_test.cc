#include <limits>

#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

struct Angles {
  Angles(int64_t tokens, int64_t head_dim)
      : cos(Random(tokens * head_dim / 2, 1, 100.0f)), sin(cos), view{cos.data(), sin.data(), head_dim} {
    for (size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(sin[i]);
      sin[i] = std::sin(sin[i]);
    }
  }
  Angles(const Angles&) = delete;
  Angles& operator=(const Angles&) = delete;
  std::vector<float> cos, sin;
  RopeAngles view;
};

using Rope = void (*)(View, const RopeAngles&, ThreadPool&);
using ReferenceRope = void (*)(View, const RopeAngles&);

constexpr std::pair<Rope, ReferenceRope> kRopes[] = {{&RopeInterleaved, &reference::RopeInterleaved},
                                                     {&RopeHalves, &reference::RopeHalves}};
constexpr int64_t kShapes[][3] = {{1, 1, 2}, {3, 2, 24}, {5, 3, 6}, {7, 2, 80}, {60, 24, 128}, {4, 1, 34}};

TEST(Rope, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rope, reference] : kRopes) {
      for (const auto& [tokens, heads, head_dim] : kShapes) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
        const Angles angles(tokens, head_dim);
        const std::vector<float> x = Random(tokens * heads * head_dim, 2, 5.0f);
        std::vector<float> got = x, want = x;
        rope(Rows(got, tokens), angles.view, FourThreads());
        reference(Rows(want, tokens), angles.view);
        ExpectNear(got, want, [](int64_t) { return 4 * kUnit * 5.0 * 5.0; });
      }
    }
  });
}

// A fused kernel, what it replaces after the norm, and its slow twin.
struct NormAndRope {
  void (*fused)(View, const float* weight, float eps, const RopeAngles&, ThreadPool&);
  Rope rope;
  void (*reference)(View, const float* weight, float eps, const RopeAngles&);
};
constexpr NormAndRope kNormAndRopes[] = {
    {&RmsNormRope, &RopeInterleaved, &reference::RmsNormRope},
    {&RmsNormRopeHalves, &RopeHalves, &reference::RmsNormRopeHalves},
};

TEST(RmsNormRope, IsRmsNormThenRope) {
  ForEachTarget([] {
    for (const NormAndRope& kernel : kNormAndRopes) {
      for (const auto& [tokens, heads, head_dim] : kShapes) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
        const Angles angles(tokens, head_dim);
        const std::vector<float> x = Random(tokens * heads * head_dim, 4, 5.0f), weight = Random(head_dim, 5);
        const auto fused = [&, tokens = tokens](ThreadPool& pool) {
          std::vector<float> y = x;
          kernel.fused(Rows(y, tokens), weight.data(), 1e-6f, angles.view, pool);
          return y;
        };
        std::vector<float> separate = x, want = x;
        RmsNorm(Rows(x, tokens * heads), weight.data(), 1e-6f, Rows(separate, tokens * heads), FourThreads());
        kernel.rope(Rows(separate, tokens), angles.view, FourThreads());
        ExpectSame(fused(FourThreads()), separate);
        ExpectSame(fused(OneThread()), separate);
        kernel.reference(Rows(want, tokens), weight.data(), 1e-6f, angles.view);
        EXPECT_LE(Nmse(separate, want), 1e-12);
      }
    }
  });
}

TEST(Rope, DoesNotDependOnThreadsAndKeepsNotANumberInItsToken) {
  const int64_t tokens = 100, heads = 9, head_dim = 80;
  const Angles angles(tokens, head_dim);
  std::vector<float> x = Random(tokens * heads * head_dim, 3);
  x[(41 * heads + 4) * head_dim + 79] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    for (const auto& [rope, reference] : kRopes) {
      std::vector<float> one = x, four = x;
      rope(Rows(one, tokens), angles.view, OneThread());
      rope(Rows(four, tokens), angles.view, FourThreads());
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

#include <limits>

#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// Large values, and values small enough for eps to count.
constexpr float kScales[] = {100.0f, 1e-3f};
constexpr int64_t kSizes[][2] = {{1, 1}, {3, 2}, {5, 5}, {7, 24}, {4, 31}, {9, 96}, {300, 130}, {40, 3072}};

// A normed value is the input times one factor: a handful of roundings, and those of the sums behind the
// factor, which the 4 · lanes partial sums keep near √(cols / lanes) units.
double Tolerance(float want, int64_t cols) {
  return (6 + 2 * std::sqrt(static_cast<double>(cols))) * kUnit * (std::abs(want) + 0.1);
}

TEST(LayerNorm, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kSizes) {
      for (float scale : kScales) {
        const std::vector<float> x = Random(rows * cols, 1, scale);
        std::vector<float> got(x.size()), want(x.size());
        LayerNorm(Rows(x, rows), 1e-6f, Rows(got, rows), FourThreads());
        reference::LayerNorm(Rows(x, rows), 1e-6f, Rows(want, rows));
        ExpectNear(got, want, [&, c = cols](int64_t i) { return Tolerance(want[i], c); });
      }
    }
  });
}

TEST(LayerNorm, WithWeightAndBiasMatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kSizes) {
      for (float scale : kScales) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
        const std::vector<float> x = Random(rows * cols, 1, scale);
        const std::vector<float> weight = Random(cols, 2), bias = Random(cols, 3);
        std::vector<float> got(x.size()), normed(x.size()), want(x.size());
        LayerNorm(Rows(x, rows), weight.data(), bias.data(), 1e-6f, Rows(got, rows), FourThreads());
        LayerNorm(Rows(x, rows), 1e-6f, Rows(normed, rows), FourThreads());
        reference::LayerNorm(Rows(x, rows), weight.data(), bias.data(), 1e-6f, Rows(want, rows));
        // The sum may cancel: what counts is the size of what is added.
        ExpectNear(got, want, [&, c = cols](int64_t i) {
          return Tolerance(std::abs(normed[i] * weight[i % c]) + std::abs(bias[i % c]), c);
        });
      }
    }
  });
}

// The residual stream of the last blocks: a few channels reach ± 4.5e7, and means that dwarf the deviations.
TEST(LayerNorm, KeepsItsAccuracyAtHugeValuesAndOffsets) {
  const int64_t rows = 8, cols = 3072;
  ForEachTarget([&] {
    for (float offset : {0.0f, 100.0f, 1e4f, 5e7f}) {
      std::vector<float> x = Random(rows * cols, 2, 10.0f);
      for (float& v : x) v += offset;
      for (int64_t r = 0; r < rows / 2; ++r) x[r * cols + 77 * r] = 4.5e7f;
      std::vector<float> got(x.size()), want(x.size());
      LayerNorm(Rows(x, rows), 1e-6f, Rows(got, rows), FourThreads());
      reference::LayerNorm(Rows(x, rows), 1e-6f, Rows(want, rows));
      EXPECT_LE(Nmse(got, want), 1e-12) << "offset " << offset;
    }
  });
}

TEST(RmsNorm, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kSizes) {
      for (float scale : kScales) {
        const std::vector<float> x = Random(rows * cols, 3, scale);
        const std::vector<float> weight = Random(cols, 4);
        std::vector<float> got(x.size()), want(x.size());
        RmsNorm(Rows(x, rows), weight.data(), 1e-6f, Rows(got, rows), FourThreads());
        reference::RmsNorm(Rows(x, rows), weight.data(), 1e-6f, Rows(want, rows));
        ExpectNear(got, want, [&, c = cols](int64_t i) { return Tolerance(want[i], c); });
        EXPECT_LE(Nmse(got, want), 1e-12);
      }
    }
  });
}

TEST(RmsNormHeads, IsRmsNormOfEveryHead) {
  ForEachTarget([] {
    for (const int64_t heads : {1, 3, 24}) {
      const int64_t tokens = 31, head_dim = 26;
      const std::vector<float> x = Random(tokens * heads * head_dim, 3, 5.0f), weight = Random(head_dim, 4);
      std::vector<float> got = x, separate(x.size()), want = x;
      RmsNormHeads(Rows(got, tokens), weight.data(), head_dim, 1e-6f, FourThreads());
      RmsNorm(Rows(x, tokens * heads), weight.data(), 1e-6f, Rows(separate, tokens * heads), FourThreads());
      ExpectSame(got, separate);
      reference::RmsNormHeads(Rows(want, tokens), weight.data(), head_dim, 1e-6f);
      ExpectNear(got, want, [&](int64_t i) { return Tolerance(want[i], head_dim); });
    }
  });
}

TEST(ChannelNorm, MatchesReference) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kSizes) {
      std::vector<float> x = Random(rows * cols, 5);
      const std::vector<float> gamma = Random(cols, 6);
      std::fill_n(x.begin(), cols, 0.0f);  // a black pixel has no length to divide by
      std::vector<float> got(x.size()), want(x.size());
      ChannelNorm(Rows(x, rows), gamma.data(), Rows(got, rows), FourThreads());
      reference::ChannelNorm(Rows(x, rows), gamma.data(), Rows(want, rows));
      ExpectNear(got, want, [&, c = cols](int64_t i) { return Tolerance(want[i], c); });
    }
  });
}

TEST(LayerNormModulate, IsLayerNormThenModulate) {
  ForEachTarget([] {
    for (const auto& [rows, cols] : kSizes) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
      const std::vector<float> x = Random(rows * cols, 9, 100.0f);
      const std::vector<float> scale = Random(cols, 10), shift = Random(cols, 11);
      std::vector<float> fused(x.size()), normed(x.size()), separate(x.size()), want(x.size());
      LayerNormModulate(Rows(x, rows), 1e-6f, scale.data(), shift.data(), Rows(fused, rows), FourThreads());
      LayerNorm(Rows(x, rows), 1e-6f, Rows(normed, rows), FourThreads());
      Modulate(Rows(normed, rows), scale.data(), shift.data(), Rows(separate, rows), FourThreads());
      ExpectSame(fused, separate);
      reference::LayerNormModulate(Rows(x, rows), 1e-6f, scale.data(), shift.data(), Rows(want, rows));
      // The sum may cancel: what counts is the size of what is added.
      ExpectNear(fused, want, [&, c = cols](int64_t i) {
        return Tolerance(std::abs(normed[i]) * (1 + std::abs(scale[i % c])) + std::abs(shift[i % c]), c);
      });
    }
  });
}

// Every norm once: in place, on one thread and on four, and with a NaN that must stay in its row.
TEST(Norms, WorkInPlaceOnAnyThreadsAndKeepNotANumberInItsRow) {
  const int64_t rows = 300, cols = 131;
  std::vector<float> x = Random(rows * cols, 7);
  x[33 * cols + 130] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight = Random(cols, 8);
  using Norm = void (*)(ConstView x, const float* weight, View y, ThreadPool& pool);
  const Norm norms[] = {
      [](ConstView x, const float*, View y, ThreadPool& pool) { LayerNorm(x, 1e-6f, y, pool); },
      [](ConstView x, const float* weight, View y, ThreadPool& pool) { RmsNorm(x, weight, 1e-6f, y, pool); },
      [](ConstView x, const float* weight, View y, ThreadPool& pool) {
        LayerNorm(x, weight, weight, 1e-6f, y, pool);
      },
      [](ConstView x, const float* weight, View y, ThreadPool& pool) {
        LayerNormModulate(x, 1e-6f, weight, weight, y, pool);
      },
      [](ConstView x, const float* weight, View y, ThreadPool& pool) { ChannelNorm(x, weight, y, pool); }};
  ForEachTarget([&] {
    for (const Norm& norm : norms) {
      std::vector<float> one(x.size()), in_place = x;
      norm(Rows(x, rows), weight.data(), Rows(one, rows), OneThread());
      norm(Rows(in_place, rows), weight.data(), Rows(in_place, rows), FourThreads());
      ExpectSame(one, in_place);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::isnan(one[i]), i / cols == 33) << i;
    }
  });
}

}  // namespace
}  // namespace qwen_image

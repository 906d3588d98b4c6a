#include <cmath>

#include "kernels/attention_testing.h"
#include "kernels/reference.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// The weights are right if weights · v is what the attention itself gives.
void ExpectWeightsOfAttention(const AttentionCase& c) {
  const AttentionShape& s = c.shape;
  const AttentionInputs in(c);
  std::vector<float> weights(static_cast<size_t>(s.heads * c.queries * c.keys));
  AttentionWeights(in.queries(), in.keys(), s, weights.data(), FourThreads());

  const int64_t group = s.heads / s.kv_heads;
  std::vector<float> got(static_cast<size_t>(c.queries * c.q_cols())), want(got.size());
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t i = 0; i < c.queries; ++i) {
      for (int64_t d = 0; d < s.head_dim; ++d) {
        double sum = 0;
        for (int64_t j = 0; j < c.keys; ++j)
          sum += static_cast<double>(weights[(h * c.queries + i) * c.keys + j]) *
                 in.values().row(j)[(h / group) * s.head_dim + d];
        got[(i * s.heads + h) * s.head_dim + d] = static_cast<float>(sum);
      }
    }
  }
  reference::Attention(in.queries(), in.keys(), in.values(), s, Rows(want, c.queries));
  const double logit_units = std::sqrt(static_cast<double>(s.head_dim)) * 4;
  ExpectNear(got, want, [&](int64_t) { return (8 + logit_units) * 4 * kUnit; });
}

TEST(AttentionWeights, TimesValuesIsTheAttention) {
  ExpectWeightsOfAttention(Dense(7, 13, 2, 2, 24));
  ExpectWeightsOfAttention(Dense(5, 9, 4, 2, 17));
  ExpectWeightsOfAttention(Dense(11, 11, 2, 1, 8, true));
  AttentionCase strided = Dense(6, 4, 3, 1, 10);
  strided.q_stride += 3;
  strided.kv_stride += 5;
  ExpectWeightsOfAttention(strided);
}

TEST(AttentionWeights, MatchesReference) {
  for (const AttentionCase& c :
       {Dense(7, 13, 2, 2, 24), Dense(5, 9, 4, 2, 17), Dense(11, 11, 2, 1, 8, true)}) {
    const AttentionInputs in(c);
    std::vector<float> got(static_cast<size_t>(c.shape.heads * c.queries * c.keys), -777.0f),
        want(got.size());
    AttentionWeights(in.queries(), in.keys(), c.shape, got.data(), FourThreads());
    reference::AttentionWeights(in.queries(), in.keys(), c.shape, want.data());
    // A weight carries the rounding of its logit, Σ|q·k| / √dim, and a few of its own.
    const double units = 8 + 4 * std::sqrt(static_cast<double>(c.shape.head_dim));
    ExpectNear(got, want, [&](int64_t i) { return units * kUnit * want[static_cast<size_t>(i)]; });
  }
}

TEST(AttentionEntropy, MatchesReference) {
  for (const AttentionCase& c :
       {Dense(70, 13, 2, 2, 24), Dense(5, 9, 4, 2, 17), Dense(11, 11, 2, 1, 8, true)}) {
    const AttentionInputs in(c);
    std::vector<float> got(static_cast<size_t>(c.shape.heads), -777.0f), want(got.size());
    AttentionEntropy(in.queries(), in.keys(), c.shape, 6, got.data(), FourThreads());
    reference::AttentionEntropy(in.queries(), in.keys(), c.shape, 6, want.data());
    // The weights' roundings, of sums of w · log(w) that are at most 1 together.
    const double units = 8 + 4 * std::sqrt(static_cast<double>(c.shape.head_dim));
    ExpectNear(got, want, [&](int64_t) { return units * kUnit; });
  }
}

TEST(AttentionEntropy, IsZeroForOneKeyAndOneForEqualOnes) {
  const AttentionCase s = Dense(3, 50, 2, 2, 4);
  // Head 0 asks nothing: all keys are alike. Head 1 finds one key with a logit of 500.
  std::vector<float> q(static_cast<size_t>(s.queries * s.q_stride), 0.0f),
      k = Random(s.keys * s.kv_stride, 4);
  for (int64_t i = 0; i < s.queries; ++i) q[i * 8 + 4] = 100.0f;
  for (int64_t j = 0; j < s.keys; ++j) k[j * 8 + 4] = j == 17 ? 10.0f : 0.0f;
  std::vector<float> entropy(2, -1.0f);
  AttentionEntropy(Rows(q, s.queries), Rows(k, s.keys), s.shape, 64, entropy.data(), FourThreads());
  EXPECT_NEAR(entropy[0], 1.0, 1e-5);
  EXPECT_NEAR(entropy[1], 0.0, 1e-5);
}

TEST(AttentionEntropy, SamplesEvenlySpreadQueries) {
  const AttentionCase s = Dense(100, 30, 1, 1, 8);
  const auto q = Random(s.queries * s.q_stride, 1, 3.0f), k = Random(s.keys * s.kv_stride, 2);
  std::vector<float> weights(static_cast<size_t>(s.queries * s.keys));
  AttentionWeights(Rows(q, s.queries), Rows(k, s.keys), s.shape, weights.data(), OneThread());
  double sum = 0;
  for (int64_t i = 0; i < 100; i += 10) {
    for (int64_t j = 0; j < s.keys; ++j) {
      const double w = weights[i * s.keys + j];
      sum -= w > 0 ? w * std::log(w) : 0;
    }
  }
  float entropy = 0;
  AttentionEntropy(Rows(q, s.queries), Rows(k, s.keys), s.shape, 10, &entropy, OneThread());
  EXPECT_NEAR(entropy, sum / 10 / std::log(30.0), 1e-5);
}

}  // namespace
}  // namespace qwen_image

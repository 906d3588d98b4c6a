#include <limits>

#include "kernels/kernels.h"
#include "kernels/kernels_testing.h"
#include "kernels/reference.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

struct Inputs {
  Inputs(const AttentionShape& s, float scale)
      : q(Random(s.queries * s.q_stride, 1, scale)),
        k(Random(s.keys * s.kv_stride, 2, scale)),
        v(Random(s.keys * s.kv_stride, 3)) {}
  std::vector<float> q, k, v;
};

AttentionShape Dense(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     bool causal = false) {
  return {queries, keys, heads, kv_heads, head_dim, heads * head_dim, kv_heads * head_dim, causal};
}

std::vector<float> Attend(const Inputs& in, const AttentionShape& s, ThreadPool& pool = FourThreads()) {
  std::vector<float> out(static_cast<size_t>(s.queries * s.heads * s.head_dim), -777.0f);
  Attention(in.q.data(), in.k.data(), in.v.data(), s, out.data(), pool);
  return out;
}

// A logit of size L is rounded by about L · (units of its sum) and so changes its weight by that factor; the
// outputs are means of values of size 1, at most `largest_value`.
void ExpectRight(const AttentionShape& s, float scale) {
  SCOPED_TRACE(::testing::Message() << s.queries << " queries, " << s.keys << " keys, " << s.heads << "/"
                                    << s.kv_heads << " heads of " << s.head_dim
                                    << (s.causal ? ", causal" : "") << ", scale " << scale);
  const Inputs in(s, scale);
  std::vector<float> want(static_cast<size_t>(s.queries * s.heads * s.head_dim));
  reference::Attention(in.q.data(), in.k.data(), in.v.data(), s, want.data());
  const double dim = static_cast<double>(s.head_dim);
  const double logit_size = scale * scale * std::sqrt(dim);  // Σ|q·k| / √dim, up to a factor near 1
  const double units = 8 + 4 * logit_size * std::sqrt(std::min(dim, 256.0)) / 4;
  const double largest_value = 4;
  ExpectNear(Attend(in, s), want, [&](int64_t) { return units * kUnit * largest_value; });
}

TEST(Attention, MatchesReferenceForOddSizes) {
  const AttentionShape shapes[] = {
      Dense(1, 1, 1, 1, 24),          Dense(5, 7, 2, 2, 24),           Dense(49, 300, 2, 1, 32),
      Dense(17, 33, 4, 2, 80),        Dense(103, 259, 3, 3, 128),      Dense(50, 70, 1, 1, 384),
      Dense(65, 65, 2, 1, 128, true), Dense(300, 300, 1, 1, 24, true), Dense(270, 270, 2, 2, 17, true),
      Dense(7, 600, 1, 1, 5),         Dense(150, 520, 6, 2, 48)};
  ForEachTarget([&] {
    for (const AttentionShape& s : shapes) ExpectRight(s, 1.0f);
  });
}

TEST(Attention, ReadsStridedTokens) {
  AttentionShape s = Dense(60, 41, 3, 1, 24);
  s.q_stride += 13;
  s.kv_stride += 5;
  ForEachTarget([&] { ExpectRight(s, 1.0f); });
}

// The running maximum has to move from block to block, and far: logits of ± a few thousand.
TEST(Attention, SurvivesHugeLogits) {
  ForEachTarget([] {
    ExpectRight(Dense(20, 700, 1, 1, 128), 20.0f);
    const AttentionShape s = Dense(1, 600, 1, 1, 4);
    Inputs in(s, 1.0f);
    in.q = {100.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t j = 0; j < s.keys; ++j)
      in.k[j * 4] = j == 599 ? 200.0f : -200.0f + 0.5f * static_cast<float>(j % 300);
    const std::vector<float> out =
        Attend(in, s);  // the last key's logit is 10,000, all others are below -2,500
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(out[c], in.v[599 * 4 + c]);
  });
}

TEST(Attention, DoesNotDependOnThreads) {
  const AttentionShape s = Dense(333, 333, 3, 3, 40);
  const Inputs in(s, 1.0f);
  ForEachTarget([&] { ExpectSame(Attend(in, s, OneThread()), Attend(in, s, FourThreads())); });
}

TEST(Attention, NotANumberStaysInItsQuery) {
  const AttentionShape s = Dense(70, 90, 2, 1, 24);
  Inputs in(s, 1.0f);
  in.q[(31 * 2 + 1) * 24 + 23] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> out = Attend(in, s);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 24 == 31 * 2 + 1) << i;
  });
}

// A query does not see later keys, whatever is in them.
TEST(Attention, CausalMaskHidesEvenNotANumber) {
  const AttentionShape s = Dense(400, 400, 1, 1, 24, true);
  Inputs in(s, 1.0f);
  in.k[301 * 24] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> out = Attend(in, s);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 24 >= 301) << i;
  });
}

}  // namespace
}  // namespace qwen_image

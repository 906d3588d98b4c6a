#include <limits>

#include "kernels/attention_testing.h"
#include "kernels/reference.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

using Inputs = AttentionInputs;

std::vector<float> Attend(const Inputs& in, ThreadPool& pool = FourThreads()) {
  std::vector<float> out(static_cast<size_t>(in.sizes.queries * in.sizes.q_cols()), -777.0f);
  Attention(in.queries(), in.keys(), in.values(), in.sizes.shape, Rows(out, in.sizes.queries), pool);
  return out;
}

// A logit of size L is rounded by about L · (units of its sum) and so changes its weight by that factor; the
// outputs are means of values of size 1, at most `largest_value`.
void ExpectRight(const AttentionCase& c, float scale) {
  const AttentionShape& s = c.shape;
  SCOPED_TRACE(::testing::Message() << c.queries << " queries, " << c.keys << " keys, " << s.heads << "/"
                                    << s.kv_heads << " heads of " << s.head_dim
                                    << (s.causal ? ", causal" : "") << ", scale " << scale);
  const Inputs in(c, scale);
  std::vector<float> want(static_cast<size_t>(c.queries * c.q_cols()));
  reference::Attention(in.queries(), in.keys(), in.values(), s, Rows(want, c.queries));
  const double dim = static_cast<double>(s.head_dim);
  const double logit_size = scale * scale * std::sqrt(dim);  // Σ|q·k| / √dim, up to a factor near 1
  const double units = 8 + 4 * logit_size * std::sqrt(std::min(dim, 256.0)) / 4;
  const double largest_value = 4;
  ExpectNear(Attend(in), want, [&](int64_t) { return units * kUnit * largest_value; });
}

TEST(Attention, MatchesReferenceForOddSizes) {
  const AttentionCase cases[] = {
      Dense(1, 1, 1, 1, 24),          Dense(5, 7, 2, 2, 24),           Dense(49, 300, 2, 1, 32),
      Dense(17, 33, 4, 2, 80),        Dense(103, 259, 3, 3, 128),      Dense(50, 70, 1, 1, 384),
      Dense(65, 65, 2, 1, 128, true), Dense(300, 300, 1, 1, 24, true), Dense(270, 270, 2, 2, 17, true),
      Dense(7, 600, 1, 1, 5),         Dense(150, 520, 6, 2, 48),       Dense(5, 300, 2, 1, 24, true),
      Dense(170, 203, 1, 1, 32, true)};
  ForEachTarget([&] {
    for (const AttentionCase& c : cases) ExpectRight(c, 1.0f);
  });
}

TEST(Attention, ReadsStridedTokens) {
  AttentionCase s = Dense(60, 41, 3, 1, 24);
  s.q_stride += 13;
  s.kv_stride += 5;
  ForEachTarget([&] { ExpectRight(s, 1.0f); });
}

// The running maximum has to move from block to block, and far: logits of ± a few thousand.
TEST(Attention, SurvivesHugeLogits) {
  ForEachTarget([] {
    ExpectRight(Dense(20, 700, 1, 1, 128), 20.0f);
    const AttentionCase s = Dense(1, 600, 1, 1, 4);
    Inputs in(s, 1.0f);
    in.q = {100.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t j = 0; j < s.keys; ++j)
      in.k[j * 4] = j == 599 ? 200.0f : -200.0f + 0.5f * static_cast<float>(j % 300);
    const std::vector<float> out = Attend(in);  // the last key's logit is 10,000, all others are below -2,500
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(out[c], in.v[599 * 4 + c]);
  });
}

TEST(Attention, DoesNotDependOnThreads) {
  const AttentionCase s = Dense(333, 333, 3, 3, 40);
  const Inputs in(s, 1.0f);
  ForEachTarget([&] { ExpectSame(Attend(in, OneThread()), Attend(in, FourThreads())); });
}

TEST(Attention, NotANumberStaysInItsQuery) {
  const AttentionCase s = Dense(70, 90, 2, 1, 24);
  Inputs in(s, 1.0f);
  in.q[(31 * 2 + 1) * 24 + 23] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> out = Attend(in);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 24 == 31 * 2 + 1) << i;
  });
}

// A query does not see later keys, whatever is in them.
TEST(Attention, CausalMaskHidesEvenNotANumber) {
  const AttentionCase s = Dense(400, 400, 1, 1, 24, true);
  Inputs in(s, 1.0f);
  in.k[301 * 24] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> out = Attend(in);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 24 >= 301) << i;
  });
}

}  // namespace
}  // namespace qwen_image

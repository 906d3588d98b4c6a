// Attention in 8 bits, for every kernel that this machine can run.
#include "kernels/int8/attention.h"

#include <fmt/format.h>

#include <limits>

#include "kernels/attention_testing.h"
#include "kernels/int8/packed_attention.h"
#include "kernels/int8/testing.h"
#include "kernels/reference.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Once for every kernel that attention in 8 bits is made for.
template <class Body>
void ForEachPlainKernel(const Body& body) {
  ForEachKernel([&] {
    if (ChosenInt8Kernel().weights != Int8Weights::kNibbles) body();
  });
}

std::vector<float> Attend8(const AttentionInputs& in, double limit = kNoLimit,
                           ThreadPool& pool = FourThreads()) {
  std::vector<float> out(static_cast<size_t>(in.sizes.queries * in.sizes.q_cols()), -777.0f);
  Int8Attention(in.queries(), in.keys(), in.values(), in.sizes.shape, Rows(out, in.sizes.queries), pool,
                limit);
  return out;
}

std::vector<float> Exact(const AttentionInputs& in) {
  std::vector<float> out(static_cast<size_t>(in.sizes.queries * in.sizes.q_cols()));
  reference::Attention(in.queries(), in.keys(), in.values(), in.sizes.shape, Rows(out, in.sizes.queries));
  return out;
}

// By the kernel for fp32.
std::vector<float> InFp32(const AttentionInputs& in) {
  std::vector<float> out(static_cast<size_t>(in.sizes.queries * in.sizes.q_cols()));
  Attention(in.queries(), in.keys(), in.values(), in.sizes.shape, Rows(out, in.sizes.queries), FourThreads());
  return out;
}

// What kernels compute in vectors, one number after the other. Everything up to the integers is done in the
// same order and with the same roundings as there, because a number that lies between two integers would
// otherwise go to the other one now and then; everything behind them in double.
namespace twin {

struct Group {
  float scale = 0;
  std::vector<int> a;
};

Group Quantize(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  Group group{.scale = largest / 127.0f, .a = {}};
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  for (int64_t i = 0; i < count; ++i) group.a.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
  return group;
}

std::vector<Group> QuantizeRow(const float* x, int64_t depth, int64_t group) {
  std::vector<Group> groups;
  for (int64_t i = 0; i < depth; i += group) groups.push_back(Quantize(x + i, group));
  return groups;
}

std::vector<float> MeanKey(ConstView k) {
  std::vector<float> mean;
  for (int64_t c = 0; c < k.cols; ++c) {
    double sum = 0;
    for (int64_t block = 0; block < k.rows; block += 64) {
      float of_block = 0;
      for (int64_t j = block; j < std::min(k.rows, block + 64); ++j) of_block += k.row(j)[c];
      sum += static_cast<double>(of_block);
    }
    mean.push_back(static_cast<float>(sum / static_cast<double>(k.rows)));
  }
  return mean;
}

// In units of log2. Kernels that multiply with unsigned integers add `offset` to those of the keys, which a
// second term takes away again.
float Logit(const std::vector<Group>& q, const std::vector<Group>& k, float to_log2, int offset) {
  float logit = 0;
  for (size_t g = 0; g < k.size(); ++g) {
    int dot = 0, sum = 0;
    for (size_t i = 0; i < k[g].a.size(); ++i) {
      dot += (k[g].a[i] + offset) * q[g].a[i];
      sum += q[g].a[i];
    }
    const float k_scale = k[g].scale * to_log2;
    logit = std::fma(static_cast<float>(dot), k_scale * q[g].scale, logit);
    logit = std::fma(-static_cast<float>(offset) * k_scale, q[g].scale * static_cast<float>(sum), logit);
  }
  return logit;
}

int Weight(float logit, float largest) {
  const float x = std::max(logit - (largest - 7.9943533f), -126.0f);
  const float n = std::nearbyint(x), f = x - n;
  float p = std::fma(f, 0.009582853f, 0.055906425f);
  for (const float c : {0.24024099f, 0.6931242f, 1.0f}) p = std::fma(f, p, c);
  return static_cast<int>(std::nearbyint(std::ldexp(p, static_cast<int>(n))));
}

struct Value {
  double scale, least;
  std::vector<int> q;
};

Value QuantizeValue(ConstView v, int64_t first, int64_t col) {
  const int64_t end = std::min<int64_t>(v.rows, first + kKeyGroup);
  float least = v.row(first)[col], most = least;
  for (int64_t j = first; j < end; ++j) {
    least = std::min(least, v.row(j)[col]);
    most = std::max(most, v.row(j)[col]);
  }
  const float scale = (most - least) * (1.0f / 255);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  Value value{scale, least, {}};
  for (int64_t j = first; j < end; ++j)
    value.q.push_back(static_cast<int>(std::nearbyint((v.row(j)[col] - least) * inverse)));
  return value;
}

void AttendHead(ConstView q, ConstView k, ConstView v, int offset, View out) {
  const int64_t dim = q.cols, group = dim % 64 == 0 ? 64 : dim % 32 == 0 ? 32 : 16;
  const auto to_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
  const std::vector<float> mean = MeanKey(k);
  std::vector<std::vector<Group>> keys;
  std::vector<std::vector<Value>> values;  // [groups of keys][dim]
  for (int64_t j = 0; j < k.rows; ++j) {
    std::vector<float> key(k.row(j), k.row(j) + dim);
    for (int64_t c = 0; c < dim; ++c) key[static_cast<size_t>(c)] -= mean[static_cast<size_t>(c)];
    keys.push_back(QuantizeRow(key.data(), dim, group));
  }
  for (int64_t first = 0; first < k.rows; first += kKeyGroup) {
    values.emplace_back();
    for (int64_t c = 0; c < dim; ++c) values.back().push_back(QuantizeValue(v, first, c));
  }
  for (int64_t i = 0; i < q.rows; ++i) {
    const std::vector<Group> query = QuantizeRow(q.row(i), dim, group);
    std::vector<float> logits;
    for (const auto& key : keys) logits.push_back(Logit(query, key, to_log2, offset));
    const float largest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> sums(static_cast<size_t>(dim));
    double total = 0;
    for (size_t g = 0; g < values.size(); ++g) {
      const auto first = logits.begin() + static_cast<int64_t>(g) * kKeyGroup;
      const auto last = first + std::min<int64_t>(kKeyGroup, logits.end() - first);
      const float of_group = *std::max_element(first, last);
      const double scale = std::exp2(static_cast<double>(of_group - largest)) / 255;
      for (auto logit = first; logit != last; ++logit) {
        const double weight = scale * Weight(*logit, of_group);
        total += weight;
        for (size_t c = 0; c < sums.size(); ++c) {
          const Value& value = values[g][c];
          sums[c] += weight * (value.scale * value.q[static_cast<size_t>(logit - first)] + value.least);
        }
      }
    }
    for (size_t c = 0; c < sums.size(); ++c) out.row(i)[c] = static_cast<float>(sums[c] / total);
  }
}

}  // namespace twin

std::vector<float> SlowTwin(const AttentionInputs& in, const Int8Kernel& kernel) {
  const AttentionShape& s = in.sizes.shape;
  const int offset = kernel.weights == Int8Weights::kSigned ? 0 : 128;
  std::vector<float> out(static_cast<size_t>(in.sizes.queries * in.sizes.q_cols()));
  const View to = Rows(out, in.sizes.queries);
  for (int64_t head = 0; head < s.heads; ++head) {
    const int64_t col = head * s.head_dim, kv_col = head / (s.heads / s.kv_heads) * s.head_dim;
    twin::AttendHead(in.queries().Cols(col, s.head_dim), in.keys().Cols(kv_col, s.head_dim),
                     in.values().Cols(kv_col, s.head_dim), offset, to.Cols(col, s.head_dim));
  }
  return out;
}

// Scores of this standard deviation, keys with a mean of the same size as they vary by.
AttentionInputs WithScores(const AttentionCase& c, double deviation) {
  AttentionInputs in(c, static_cast<float>(std::sqrt(deviation)));
  const std::vector<float> mean = Random(c.kv_cols(), 7, static_cast<float>(std::sqrt(deviation)));
  for (int64_t j = 0; j < c.keys; ++j)
    for (int64_t i = 0; i < c.kv_cols(); ++i)
      in.k[static_cast<size_t>(j * c.kv_stride + i)] += mean[static_cast<size_t>(i)];
  return in;
}

// Some instruction sets add and multiply in two roundings: a few numbers then go to the neighbouring integer.
// One of 255 steps off in one of a thousand weights is 1e-3 · (1 / 255)² of a row.
TEST(Int8Attention, MatchesItsSlowTwinForOddSizes) {
  const AttentionCase cases[] = {
      Dense(1, 1, 1, 1, 16),     Dense(5, 7, 2, 2, 32),      Dense(49, 300, 2, 1, 32),
      Dense(17, 33, 4, 2, 80),   Dense(103, 259, 3, 3, 128), Dense(50, 70, 1, 1, 384),
      Dense(145, 600, 1, 1, 48), Dense(13, 513, 2, 2, 64),   Dense(150, 520, 6, 2, 48)};
  for (const AttentionCase& c : cases) {
    const AttentionInputs in = WithScores(c, 1.0);
    ForEachPlainKernel([&] {
      const std::vector<float> want = SlowTwin(in, ChosenInt8Kernel());
      ForEachTarget([&] {
        EXPECT_LE(Nmse(Attend8(in), want), 1e-7) << c.queries << " queries, " << c.keys << " keys";
      });
      // Plain C++ multiplies and adds in two roundings where the compiler has no instruction for both.
      const double tolerance = &ChosenInt8Kernel() == &kInt8Portable ? 1e-7 : 1e-10;
      EXPECT_LE(Nmse(Attend8(in), want), tolerance)
          << c.queries << " queries, " << c.keys << " keys of " << c.shape.head_dim;
    });
  }
}

TEST(Int8Attention, IsNearExactForScoresOfAllSizes) {
  for (const double deviation : {0.5, 1.0, 2.0, 3.0, 4.0}) {
    const AttentionInputs in = WithScores(Dense(144, 2000, 1, 1, 128), deviation);
    const std::vector<float> want = Exact(in);
    ForEachPlainKernel([&] {
      const double error = Nmse(Attend8(in), want);
      EXPECT_LE(error, kInt8AttentionLimit) << "scores of standard deviation " << deviation;
      RecordProperty(fmt::format("{}_at_deviation_{}", ChosenInt8Kernel().name, deviation),
                     fmt::format("{:.1e}", error));
    });
  }
}

// What users rely on.
TEST(Int8Attention, DoesNotDependOnThreads) {
  const AttentionInputs in(Dense(333, 333, 3, 3, 48), 1.0f);
  ForEachPlainKernel(
      [&] { ExpectSame(Attend8(in, kNoLimit, OneThread()), Attend8(in, kNoLimit, FourThreads())); });
}

TEST(Int8Attention, ReadsStridedTokens) {
  AttentionCase c = Dense(80, 290, 2, 1, 32);
  const AttentionInputs dense(c, 1.0f);
  c.q_stride += 13;
  c.kv_stride += 5;
  AttentionInputs strided(c, 1.0f);
  const auto spread = [](const std::vector<float>& from, int64_t cols, std::vector<float>& to,
                         int64_t stride) {
    for (size_t i = 0; i < from.size(); ++i)
      to[i / static_cast<size_t>(cols) * static_cast<size_t>(stride) + i % static_cast<size_t>(cols)] =
          from[i];
  };
  spread(dense.q, c.q_cols(), strided.q, c.q_stride);
  spread(dense.k, c.kv_cols(), strided.k, c.kv_stride);
  spread(dense.v, c.kv_cols(), strided.v, c.kv_stride);
  ExpectSame(Attend8(dense), Attend8(strided));
}

TEST(Int8Attention, SurvivesHugeLogits) {
  const AttentionInputs in = WithScores(Dense(70, 700, 1, 1, 128), 4000.0);
  ForEachPlainKernel([&] {
    for (const float x : Attend8(in)) ASSERT_TRUE(std::isfinite(x));
  });
}

TEST(Int8Attention, NotANumberInAQueryStaysThere) {
  AttentionInputs in(Dense(70, 290, 2, 1, 32), 1.0f);
  in.q[(31 * 2 + 1) * 32 + 23] = std::numeric_limits<float>::quiet_NaN();
  ForEachPlainKernel([&] {
    const std::vector<float> out = Attend8(in);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 32 == 31 * 2 + 1) << i;
  });
}

TEST(Int8Attention, NotANumberInAKeyOrAValueIsSeen) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionInputs keys(Dense(70, 290, 1, 1, 32), 1.0f), values = keys;
    keys.k[100 * 32 + 3] = bad;
    values.v[100 * 32 + 3] = bad;
    const std::vector<float> fp32 = InFp32(keys);
    ForEachPlainKernel([&] {
      const std::vector<float> of_keys = Attend8(keys);
      for (size_t i = 0; i < fp32.size(); ++i)  // where fp32 has a number, infinity may leave that
        ASSERT_TRUE(std::isnan(of_keys[i]) || (std::isinf(bad) && of_keys[i] == fp32[i])) << i;
      const std::vector<float> out = Attend8(values);
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isfinite(out[i]), i % 32 != 3) << i;
    });
  }
}

// One number of all keys a thousand times the others takes their bits: they decide nothing any more.
TEST(Int8Attention, HeadsThatDoNotBearItStayExact) {
  AttentionInputs in(Dense(70, 290, 2, 2, 64), 1.0f);
  std::mt19937 engine(5);
  for (int64_t j = 0; j < in.sizes.keys; ++j)
    in.k[static_cast<size_t>(j * 128 + 64 + 5)] = engine() % 2 ? 2000.0f : -2000.0f;
  for (int64_t i = 0; i < in.sizes.queries; ++i) in.q[static_cast<size_t>(i * 128 + 64 + 5)] = 0.0f;
  ForEachPlainKernel([&] {
    const std::vector<double> errors =
        Int8AttentionErrors(in.queries(), in.keys(), in.values(), in.sizes.shape, FourThreads());
    ASSERT_EQ(errors.size(), 2u);
    EXPECT_LT(errors[0], kInt8AttentionLimit);
    EXPECT_GT(errors[1], kInt8AttentionLimit);
    const std::vector<float> out = Attend8(in, kInt8AttentionLimit), coarse = Attend8(in);
    const std::vector<float> fp32 = InFp32(in);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i % 128 < 64 ? coarse[i] : fp32[i]) << i;
  });
}

// The text's tokens beside a picture's are few, and no evenly spread sample meets them.
TEST(Int8Attention, FewQueriesThatLoseTheirBitsAreSeen) {
  AttentionInputs in(Dense(300, 290, 2, 2, 64), 1.0f);
  for (int64_t j = 0; j < in.sizes.keys; ++j) in.k[static_cast<size_t>(j * 128 + 64 + 5)] *= 0.001f;
  for (int64_t i = 0; i < 5; ++i) in.q[static_cast<size_t>(i * 128 + 64 + 5)] = 1000.0f;
  ForEachPlainKernel([&] {
    const std::vector<double> errors =
        Int8AttentionErrors(in.queries(), in.keys(), in.values(), in.sizes.shape, FourThreads());
    EXPECT_LT(errors[0], kInt8AttentionLimit);
    EXPECT_GT(errors[1], kInt8AttentionLimit);
  });
}

// Sums of 64 keys are larger than any float; in fp32 everything is finite.
TEST(Int8Attention, WhatIsFiniteInFp32StaysFinite) {
  AttentionInputs in(Dense(70, 290, 3, 3, 64), 1.0f);
  for (float& x : in.k) x *= 3e37f;
  for (float& x : in.q) x *= 1e-38f;
  const std::vector<float> fp32 = InFp32(in);
  for (const float x : fp32) ASSERT_TRUE(std::isfinite(x));
  ForEachPlainKernel([&] { ExpectSame(Attend8(in, kInt8AttentionLimit), fp32); });
}

}  // namespace
}  // namespace qwen_image

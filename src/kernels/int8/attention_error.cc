#include "kernels/int8/attention_error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/attention_error.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"

#ifndef QWEN_IMAGE_KERNELS_INT8_ATTENTION_ERROR_ONCE_
#define QWEN_IMAGE_KERNELS_INT8_ATTENTION_ERROR_ONCE_
namespace qwen_image {
// Each reads all keys and values of its head once: four together read them once for all.
constexpr int64_t kAttentionSamples = 4;
}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, 16>;
using VF32 = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());

// losses[i]: how much rounding query i to 8 bits may change its logits, squared and up to a factor. spreads
// [groups] tells how far keys are from each other.
void RoundingLosses(ConstView q, int64_t group, const float* spreads, float* losses /*[q.rows]*/) {
  const F32 d;
  for (int64_t i = 0; i < q.rows; ++i) {
    float loss = 0;
    for (int64_t first = 0; first < q.cols; first += group) {
      VF32 most = hn::Zero(d);
      for (int64_t c = first; c < first + group; c += kLanes)
        most = hn::Max(most, hn::Abs(hn::LoadU(d, q.row(i) + c)));
      const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
      loss += largest * largest * spreads[first / group];
    }
    losses[i] = loss;
  }
}

// logits[s][j] = q_s · k_j, in units of log2.
void ExactLogits(ConstView q, ConstView k, float* logits /*[samples][keys]*/) {
  const F32 d;
  constexpr double kLog2E = 1.4426950408889634;
  const auto to_log2 = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(k.cols)));
  for (int64_t j = 0; j < k.rows; ++j) {
    VF32 sums[kAttentionSamples];
    for (VF32& sum : sums) sum = hn::Zero(d);
    for (int64_t c = 0; c < k.cols; c += kLanes) {
      const VF32 key = hn::LoadU(d, k.row(j) + c);
      for (int64_t s = 0; s < kAttentionSamples; ++s)
        sums[s] = hn::MulAdd(key, hn::LoadU(d, q.row(s) + c), sums[s]);
    }
    for (int64_t s = 0; s < kAttentionSamples; ++s)
      logits[s * k.rows + j] = to_log2 * hn::GetLane(hn::SumOfLanes(d, sums[s]));
  }
}

// out[s] = Σ weights[s][j] · v_j for kLanes numbers of a head
void ExactValues(ConstView v, const float* weights, float* out /*[samples][v.cols]*/) {
  const F32 d;
  for (int64_t c = 0; c < v.cols; c += kLanes) {
    VF32 sums[kAttentionSamples];
    for (VF32& sum : sums) sum = hn::Zero(d);
    for (int64_t j = 0; j < v.rows; ++j) {
      const VF32 value = hn::LoadU(d, v.row(j) + c);
      for (int64_t s = 0; s < kAttentionSamples; ++s)
        sums[s] = hn::MulAdd(value, hn::Set(d, weights[s * v.rows + j]), sums[s]);
    }
    for (int64_t s = 0; s < kAttentionSamples; ++s) hn::StoreU(sums[s], d, out + s * v.cols + c);
  }
}

// One head: q and out [samples, head_dim], k and v [keys, head_dim].
double ErrorOfHead(ConstView q, ConstView k, ConstView v, ConstView out) {
  const F32 d;
  const int64_t padded_keys = RoundUp(k.rows, kLanes);
  float* const logits = ThreadScratch(kAttentionSamples * padded_keys + kAttentionSamples * v.cols);
  float* const exact = logits + kAttentionSamples * padded_keys;
  ExactLogits(q, k, logits);
  double totals[kAttentionSamples];
  for (int64_t s = 0; s < kAttentionSamples; ++s) {
    float* const row = logits + s * k.rows;
    const float largest = *std::max_element(row, row + k.rows);
    double total = 0;
    for (int64_t j = 0; j < k.rows; ++j) {
      row[j] = hn::GetLane(Exp2NonPositive(d, hn::Set(d, row[j] - largest)));
      total += static_cast<double>(row[j]);
    }
    totals[s] = total;
  }
  ExactValues(v, logits, exact);
  double mean = 0;
  for (int64_t s = 0; s < kAttentionSamples; ++s) {
    double error = 0, power = 0;
    for (int64_t c = 0; c < v.cols; ++c) {
      const double want = static_cast<double>(exact[s * v.cols + c]) / totals[s];
      const double off = static_cast<double>(out.row(s)[c]) - want;
      error += off * off;
      power += want * want;
    }
    if (power > 0) mean += error / power / kAttentionSamples;
  }
  return mean;
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {
namespace {

HWY_EXPORT(ErrorOfHead);
HWY_EXPORT(RoundingLosses);

// The variance of some keys of a head, summed over each group of numbers.
std::vector<float> SpreadsOf(ConstView k, int64_t group) {
  constexpr int64_t kKeys = 64;
  const int64_t keys = std::min(kKeys, k.rows);
  std::vector<float> spreads(static_cast<size_t>(k.cols / group));
  for (int64_t c = 0; c < k.cols; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < keys; ++i) {
      const auto x = static_cast<double>(k.row(i * k.rows / keys)[c]);
      sum += x;
      squares += x * x;
    }
    spreads[static_cast<size_t>(c / group)] +=
        static_cast<float>(std::max(0.0, squares - sum * sum / static_cast<double>(keys)));
  }
  return spreads;
}

// The rows of the `count` largest losses.
std::vector<int64_t> LargestLosses(const std::vector<float>& losses, int64_t count) {
  std::vector<int64_t> rows(losses.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const auto loss = [&](int64_t row) {
    const float x = losses[static_cast<size_t>(row)];
    return std::isnan(x) ? 0.0f : x;
  };
  count = std::min(count, static_cast<int64_t>(rows.size()));
  std::partial_sort(rows.begin(), rows.begin() + count, rows.end(),
                    [&](int64_t a, int64_t b) { return loss(a) > loss(b) || (loss(a) == loss(b) && a < b); });
  rows.resize(static_cast<size_t>(count));
  return rows;
}

}  // namespace

Tensor SampleQueries(ConstView q, ConstView k, const AttentionShape& shape, int group, ThreadPool& pool) {
  constexpr int64_t kSpread = kAttentionSamples / 2;
  const int64_t dim = shape.head_dim;
  Tensor samples({kAttentionSamples, q.cols});
  ForTasks(shape.heads, q.rows * q.cols, pool, [&](int64_t head) {
    const int64_t col = head * dim, kv_col = head / (shape.heads / shape.kv_heads) * dim;
    std::vector<float> losses(static_cast<size_t>(q.rows));
    HWY_DYNAMIC_DISPATCH(RoundingLosses)
    (q.Cols(col, dim), group, SpreadsOf(k.Cols(kv_col, dim), group).data(), losses.data());
    std::vector<int64_t> rows = LargestLosses(losses, kAttentionSamples - kSpread);
    while (std::ssize(rows) < kAttentionSamples) {
      const int64_t s = std::ssize(rows) % kSpread;
      rows.push_back((2 * s + 1) * q.rows / (2 * kSpread));
    }
    for (int64_t s = 0; s < kAttentionSamples; ++s)
      std::copy_n(q.row(rows[static_cast<size_t>(s)]) + col, dim, samples.row(s) + col);
  });
  return samples;
}

std::vector<double> AttentionErrors(ConstView sampled, ConstView k, ConstView v, const AttentionShape& shape,
                                    ConstView out, ThreadPool& pool) {
  std::vector<double> errors(static_cast<size_t>(shape.heads));
  const int64_t dim = shape.head_dim;
  ForTasks(shape.heads, 2 * sampled.rows * k.rows * shape.heads * dim, pool, [&](int64_t head) {
    const int64_t col = head * dim, kv_col = head / (shape.heads / shape.kv_heads) * dim;
    errors[static_cast<size_t>(head)] = HWY_DYNAMIC_DISPATCH(ErrorOfHead)(
        sampled.Cols(col, dim), k.Cols(kv_col, dim), v.Cols(kv_col, dim), out.Cols(col, dim));
  });
  return errors;
}

}  // namespace qwen_image
#endif

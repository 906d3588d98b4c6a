// The weights inside an attention, for listeners that record a run. The runs themselves never hold them in
// memory (see attention.cc), so nothing here is on a hot path and one plain loop serves every instruction
// set.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/interface.h"

namespace qwen_image {
namespace {

float Dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 8;  // partial sums that a compiler may keep in vector registers
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (float lane : lanes) sum += lane;
  return sum;
}

int64_t KeysSeen(ConstView q, ConstView k, const AttentionShape& s, int64_t query) {
  return s.causal ? k.rows - q.rows + query + 1 : k.rows;
}

// The weights of one query of one head over all keys; keys it may not see get 0.
void SoftmaxRow(ConstView q, ConstView k, const AttentionShape& s, int64_t query, int64_t head, float* row) {
  const int64_t kv_head = head / (s.heads / s.kv_heads);
  const int64_t seen = KeysSeen(q, k, s, query);
  const float* own = q.row(query) + head * s.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  for (int64_t j = 0; j < seen; ++j) row[j] = scale * Dot(own, k.row(j) + kv_head * s.head_dim, s.head_dim);
  const float largest = *std::max_element(row, row + seen);
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) sum += row[j] = std::exp(row[j] - largest);
  for (int64_t j = 0; j < seen; ++j) row[j] = static_cast<float>(row[j] / sum);
  std::fill(row + seen, row + k.rows, 0.0f);
}

double Entropy(const float* row, int64_t keys) {
  double entropy = 0;
  for (int64_t j = 0; j < keys; ++j) {
    const double weight = row[j];
    if (!(weight <= 0)) entropy -= weight * std::log(weight);  // a NaN is carried on
  }
  return entropy;
}

}  // namespace

void AttentionWeights(ConstView q, ConstView k, const AttentionShape& s, float* weights, ThreadPool& pool) {
  pool.ParallelFor(s.heads * q.rows,
                   [&](int64_t i) { SoftmaxRow(q, k, s, i % q.rows, i / q.rows, weights + i * k.rows); });
}

void AttentionEntropy(ConstView q, ConstView k, const AttentionShape& s, int64_t max_queries, float* entropy,
                      ThreadPool& pool) {
  const int64_t sampled = std::min(max_queries, q.rows);
  pool.ParallelFor(s.heads, [&](int64_t head) {
    std::vector<float> row(static_cast<size_t>(k.rows));
    double sum = 0;
    for (int64_t i = 0; i < sampled; ++i) {
      const int64_t query = i * q.rows / sampled;
      SoftmaxRow(q, k, s, query, head, row.data());
      const int64_t seen = KeysSeen(q, k, s, query);
      if (seen > 1) sum += Entropy(row.data(), seen) / std::log(static_cast<double>(seen));
    }
    entropy[head] = static_cast<float>(sum / static_cast<double>(sampled));
  });
}

}  // namespace qwen_image

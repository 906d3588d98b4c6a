#include <algorithm>

#include "core/fail.h"
#include "kernels/int8/attention.h"
#include "ops/attention_taps.h"
#include "ops/cpu.h"

namespace qwen_image {
namespace {

// Parts that PartsOf made, as one sequence.
View Whole(const Joint& parts) {
  View whole = parts.front().view;
  for (size_t i = 1; i < parts.size(); ++i) {
    const View& part = parts[i].view;
    if (part.data != whole.row(whole.rows) || part.cols != whole.cols || part.stride != whole.stride)
      Fail(ErrorKind::kInternal, "the parts of a sequence do not lie one behind the other");
    whole.rows += part.rows;
  }
  return whole;
}

AttentionShape ShapeOf(const AttentionInput& input, bool causal) {
  return {.heads = input.heads, .kv_heads = input.kv_heads, .head_dim = input.head_dim, .causal = causal};
}

std::vector<AttentionSpan> SpansOf(const AttentionInput& input, int64_t queries, int64_t keys) {
  if (!input.spans.empty()) return input.spans;
  return {{.first_query = 0, .queries = queries, .first_key = 0, .keys = keys, .causal = input.causal}};
}

// [1, heads, queries, keys]; what a query does not see has the weight 0.
Tensor WeightsInside(const AttentionInput& input, ConstView q, ConstView k, ThreadPool& pool) {
  Tensor weights({1, input.heads, q.rows, k.rows});
  std::fill_n(weights.data(), weights.size(), 0.0f);
  for (const AttentionSpan& span : SpansOf(input, q.rows, k.rows)) {
    Tensor part({input.heads, span.queries, span.keys});
    AttentionWeights(q.Rows(span.first_query, span.queries), k.Rows(span.first_key, span.keys),
                     ShapeOf(input, span.causal), part.data(), pool);
    for (int64_t row = 0; row < input.heads * span.queries; ++row) {
      const int64_t head = row / span.queries, query = span.first_query + row % span.queries;
      std::copy_n(part.row(row), span.keys, weights.row(head * q.rows + query) + span.first_key);
    }
  }
  return weights;
}

Tensor EntropyInside(const AttentionInput& input, ConstView q, ConstView k, ThreadPool& pool) {
  constexpr int64_t kSampledQueries = 64;  // enough for a mean over a head
  Tensor entropy({1, input.heads}), part({input.heads});
  std::fill_n(entropy.data(), entropy.size(), 0.0f);
  for (const AttentionSpan& span : SpansOf(input, q.rows, k.rows)) {
    // Each span counts as much as it has queries.
    const int64_t sampled = std::max<int64_t>(1, kSampledQueries * span.queries / q.rows);
    AttentionEntropy(q.Rows(span.first_query, span.queries), k.Rows(span.first_key, span.keys),
                     ShapeOf(input, span.causal), sampled, part.data(), pool);
    const float share = static_cast<float>(span.queries) / static_cast<float>(q.rows);
    for (int64_t head = 0; head < input.heads; ++head) entropy[head] += share * part[head];
  }
  return entropy;
}

}  // namespace

std::vector<AttentionSpan> SeparateSpans(std::span<const int64_t> ends) {
  std::vector<AttentionSpan> spans;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    spans.push_back({.first_query = begin, .queries = end - begin, .first_key = begin, .keys = end - begin});
    begin = end;
  }
  return spans;
}

void ShowInside(const AttentionInput& input, ConstView q, ConstView k, ThreadPool& pool, const Tap& tap) {
  if (input.weights && tap.Wants(input.weights)) {
    Tensor weights = WeightsInside(input, q, k, pool);
    tap(input.weights, weights);
  }
  if (input.entropy && tap.Wants(input.entropy)) {
    Tensor entropy = EntropyInside(input, q, k, pool);
    tap(input.entropy, entropy);
  }
}

void CpuOps::NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) {
  const Profile::Scope timed = Timed("norm_rope");
  const auto angles_of = [](const NormRope& n) {
    return RopeAngles{n.rope->cos.view.data, n.rope->sin.view.data, static_cast<int64_t>(n.weight->size())};
  };
  const auto split = [](const NormRope& n) {
    const auto head_dim = static_cast<int64_t>(n.weight->size());
    return Shape{1, n.x->view.rows, n.x->view.cols / head_dim, head_dim};
  };
  const auto fuses = [&](const NormRope& n) { return !(n.norm && tap.Wants(n.norm)); };
  const auto show = [&](const char* name, const NormRope& n) {
    if (name) ShowAs(tap, name, split(n), *n.x);
  };
  for (const NormRope& n : inputs) {
    if (fuses(n)) {
      const auto fused = n.pairs == NormRope::Pairs::kHalves ? RmsNormRopeHalves : RmsNormRope;
      fused(n.x->view, n.weight->data(), n.eps, angles_of(n), compute_.pool);
    } else {
      RmsNormHeads(n.x->view, n.weight->data(), static_cast<int64_t>(n.weight->size()), n.eps, compute_.pool);
      show(n.norm, n);
    }
  }
  for (const NormRope& n : inputs) {
    const auto rotate = n.pairs == NormRope::Pairs::kHalves ? RopeHalves : RopeInterleaved;
    if (!fuses(n)) rotate(n.x->view, angles_of(n), compute_.pool);
    show(n.rotated, n);
  }
}

void CpuOps::RotateHalves(const Rope& rope, Array& x) {
  const Profile::Scope timed = Timed("norm_rope");
  RopeHalves(x.view, {rope.cos.view.data, rope.sin.view.data, 2 * rope.cos.cols()}, compute_.pool);
}

void CpuOps::Attend(const AttentionInput& input, Joint& out, const Tap& tap) {
  compute_.cancel.ThrowIfCancelled();
  const Profile::Scope timed = Timed("attention");
  const ConstView q = Whole(*input.q), k = Whole(*input.k), v = Whole(*input.v);
  const View to = Whole(out);
  ShowInside(input, q, k, compute_.pool, tap);
  for (const AttentionSpan& span : SpansOf(input, q.rows, k.rows)) {
    const AttentionShape shape = ShapeOf(input, span.causal);
    const ConstView queries = q.Rows(span.first_query, span.queries);
    const ConstView keys = k.Rows(span.first_key, span.keys), values = v.Rows(span.first_key, span.keys);
    const View output = to.Rows(span.first_query, span.queries);
    if (input.int8 && FitsInt8Attention(shape, span.queries, span.keys)) {
      Int8Attention(queries, keys, values, shape, output, compute_.pool);
    } else {
      Attention(queries, keys, values, shape, output, compute_.pool);
    }
  }
  if (input.output) {
    Array whole{.shape = {1, to.rows, to.cols}, .view = to, .memory = nullptr, .values = nullptr};
    Show(tap, input.output, whole);
  }
}

}  // namespace qwen_image

#include "core/fail.h"
#include "ops/attention_taps.h"
#include "ops/cpu_ops.h"

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

AttentionShape ShapeOf(const AttentionInput& input) {
  return {
      .heads = input.heads, .kv_heads = input.kv_heads, .head_dim = input.head_dim, .causal = input.causal};
}

}  // namespace

void ShowInside(const AttentionInput& input, ConstView q, ConstView k, ThreadPool& pool, const Tap& tap) {
  constexpr int64_t kSampledQueries = 64;  // enough for a mean over a head
  if (input.weights && tap.Wants(input.weights)) {
    Tensor weights({1, input.heads, q.rows, k.rows});
    AttentionWeights(q, k, ShapeOf(input), weights.data(), pool);
    tap(input.weights, weights);
  }
  if (input.entropy && tap.Wants(input.entropy)) {
    Tensor entropy({1, input.heads});
    AttentionEntropy(q, k, ShapeOf(input), kSampledQueries, entropy.data(), pool);
    tap(input.entropy, entropy);
  }
}

void CpuOps::NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) {
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
  RopeHalves(x.view, {rope.cos.view.data, rope.sin.view.data, 2 * rope.cos.cols()}, compute_.pool);
}

void CpuOps::Attend(const AttentionInput& input, Joint& out, const Tap& tap) {
  compute_.cancel.ThrowIfCancelled();
  const AttentionShape shape = ShapeOf(input);
  const ConstView q = Whole(*input.q), k = Whole(*input.k), v = Whole(*input.v);
  const View to = Whole(out);
  ShowInside(input, q, k, compute_.pool, tap);
  int64_t begin = 0;
  for (const int64_t end : input.ends.empty() ? std::vector<int64_t>{q.rows} : input.ends) {
    const int64_t count = end - begin;
    Attention(q.Rows(begin, count), k.Rows(begin, count), v.Rows(begin, count), shape, to.Rows(begin, count),
              compute_.pool);
    begin = end;
  }
  if (input.output) {
    Array whole{.shape = {1, to.rows, to.cols}, .view = to, .memory = nullptr, .values = nullptr};
    Show(tap, input.output, whole);
  }
}

}  // namespace qwen_image

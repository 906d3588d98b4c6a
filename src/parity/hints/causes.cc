#include "parity/hints/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

// The share of the variance that unrelated tensors may have in common. It is large because neighbouring
// tokens resemble each other, so few elements are independent.
constexpr double kNoRelation = 0.04;
constexpr size_t kEnoughToTell = 256;

// NaN or infinite values where the reference has finite ones.
std::optional<compare::Hint> NonFiniteHint(const HintSearch& s) {
  int64_t nan = 0, inf = 0, first = -1, overflows = 0, kept = 0;
  double error = 0, energy = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const double want = s.RefAt(i), got = s.RunAt(i);
    if (!std::isfinite(want)) continue;
    if (std::isfinite(got)) {
      error += (got - want) * (got - want);
      energy += want * want;
      kept += std::abs(want) > kLargestF16;
      continue;
    }
    if (first < 0) first = i;
    ++(std::isnan(got) ? nan : inf);
    overflows += std::abs(want) > kLargestF16;
  }
  if (nan + inf == 0) return {};
  const double rest = energy > 0 ? error / energy : error;
  // float16 has 11 significant bits: rounding to it leaves an NMSE below 2^−22.
  if (overflows == nan + inf && kept == 0 && rest <= kCollapse) {
    return compare::Hint{
        .kind = "fp16_overflow",
        .text = fmt::format("A float16 overflow: exactly the {} values that exceed 65504 in the reference "
                            "are NaN or infinite here; the others agree (NMSE {:.2g}). Large values are "
                            "normal in this model: keep the residual stream in fp32 or bf16.",
                            overflows, rest),
        .nmse_before = std::nan(""),
        .nmse_after = rest};
  }
  return compare::Hint{
      .kind = "nan_appears",
      .text = fmt::format("{} NaN and {} infinite values appear here, the first at element {}, where the "
                          "reference has {:.6g}; the others have an NMSE of {:.2g}. Look for a division "
                          "by zero, an overflow in a softmax without its maximum taken off, or memory "
                          "that was never written.",
                          nan, inf, first, s.RefAt(first), rest),
      .nmse_before = std::nan(""),
      .nmse_after = rest};
}

// No linear relation to the reference at all.
std::optional<compare::Hint> UnrelatedHint(const HintSearch& s) {
  if (!s.same_shape() || s.run().values.size() < kEnoughToTell) return {};
  double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const double want = s.RefAt(i), got = s.RunAt(i);
    x += want, y += got, xx += want * want, yy += got * got, xy += want * got;
  }
  const auto n = static_cast<double>(s.count());
  const double ref_variance = xx / n - x / n * x / n, run_variance = yy / n - y / n * y / n;
  if (!(ref_variance > 0 && run_variance > 0)) return {};
  const double covariance = xy / n - x / n * y / n;
  const double shared = covariance * covariance / (ref_variance * run_variance);
  if (!(shared <= kNoRelation)) return {};
  const double nmse = xx > 0 ? (xx - 2 * xy + yy) / xx : yy;
  return compare::Hint{
      .kind = "looks_untrained",
      .text = fmt::format(
          "No relation to the reference: the two have {:.1f} % of their variance in common "
          "(std {:.3g} here, {:.3g} there), and no rearrangement or rescaling that was "
          "tried fits. If the tensors before this one agree, its weights are not the "
          "reference's: never loaded, left at their random start, transposed, or another layer's.",
          100 * shared, std::sqrt(run_variance), std::sqrt(ref_variance)),
      .nmse_before = nmse,
      .nmse_after = nmse};
}

std::vector<compare::Hint> NotTested(std::string why) {
  return {{.kind = "not_tested",
           .text = std::move(why),
           .nmse_before = std::nan(""),
           .nmse_after = std::nan("")}};
}

HintContext::Reader ReaderOf(const record::TensorSet& set) {
  return [&set](const std::string& name) -> std::optional<HintTensor> {
    const record::TensorInfo* info = set.Find(name);
    if (!info || info->count > kMaxHintElements) return {};
    return HintTensor{info->shape, set.ReadAll(*info)};
  };
}

}  // namespace

HintContext MakeHintContext(const record::TensorSet& ref, const record::TensorSet& run) {
  HintContext context{.ref = ReaderOf(ref), .run = ReaderOf(run), .names = {}};
  for (const record::TensorInfo& tensor : ref.tensors()) context.names.push_back(tensor.name);
  context.family = &NamesFor(context.names);
  return context;
}

std::vector<compare::Hint> FindHints(const compare::TensorComparison& failed, const HintContext& context) {
  std::optional<HintTensor> ref = context.ref(failed.name), run = context.run(failed.name);
  if (!ref || !run) {
    return NotTested(
        fmt::format("No causes were tried: the tensor is missing, or has more than {} million "
                    "elements.",
                    kMaxHintElements >> 20));
  }
  if (ref->values.empty() || run->values.empty()) return {};

  HintSearch search(failed, context, std::move(*ref), std::move(*run));
  if (search.same_shape()) {
    if (auto hint = NonFiniteHint(search)) return {std::move(*hint)};
    if (search.ref().values == search.run().values) return {};  // only the type differs
  }
  for (const auto family : {TestModelHints, TestValueHints, TestPrecisionHints, TestLayoutHints,
                            TestSequenceHints, TestOtherTensorHints}) {
    family(search);
    if (search.explained()) break;
  }
  if (!search.found()) {
    if (auto hint = UnrelatedHint(search)) return {std::move(*hint)};
  }
  return search.TakeHints();
}

void AddHints(compare::Comparison& comparison, const record::TensorSet& ref, const record::TensorSet& run) {
  constexpr int kMostTested = 5;
  const HintContext context = MakeHintContext(ref, run);
  int tested = 0;
  for (compare::TensorComparison& tensor : comparison.tensors) {
    if (tensor.passed) continue;
    if (++tested > kMostTested) return;
    tensor.hints = FindHints(tensor, context);
  }
}

}  // namespace qwen_image::hints

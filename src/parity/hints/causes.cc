#include "parity/hints/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parity/compare/tensor.h"
#include "parity/hints/search.h"
#include "parity/record/level.h"

namespace qwen_image::hints {
namespace {

// The share of the variance that unrelated tensors may have in common. It is large because neighbouring
// tokens resemble each other, so few elements are independent.
constexpr double kNoRelation = 0.04;
constexpr size_t kEnoughToTell = 256;

// Sums for the linear relation of two series.
struct Relation {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;

  void Take(double want, double got) {
    n += 1, x += want, y += got, xx += want * want, yy += got * got, xy += want * got;
  }
  double ref_variance() const { return xx / n - x / n * x / n; }
  double run_variance() const { return yy / n - y / n * y / n; }
  double covariance() const { return xy / n - x / n * y / n; }
  double Shared() const { return covariance() * covariance() / (ref_variance() * run_variance()); }
  double nmse() const { return xx > 0 ? (xx - 2 * xy + yy) / xx : yy; }
};

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

// Whether a module makes this tensor whose weights could make it unlike the reference's: a norm's cannot. Of
// a name that is no family's, nobody knows.
bool HasWeights(const HintSearch& s) {
  const CheckpointNames& family = s.family();
  const std::string_view module = ModuleOf(s.name());
  if (module.size() == s.name().size() || module.find(':') != module.npos) return false;
  if (!family.order || !PlaceOf(family.order(), s.name())) return false;
  const std::string_view last = module.substr(module.rfind('.') + 1);
  // What enters an autoencoder may be read channels last, whatever the tensor before it holds.
  if (last.find("norm") != last.npos || last == family.picture_convolution) return false;
  return record::LevelOf(s.name()) != record::CheckpointLevel::kBoundaries && module != "input" &&
         std::none_of(family.weightless.begin(), family.weightless.end(),
                      [&](std::string_view end) { return module.ends_with(end); });
}

// Whether the channels that are wide in the reference are wide in the run: so it is with the right weights,
// whatever order the tokens or pixels came in.
bool ChannelsSpreadAlike(const HintSearch& s) {
  constexpr int64_t kFewChannels = 8;
  constexpr double kAlike = 0.8;
  const Shape& shape = s.ref().shape;
  const size_t axis = shape.size() >= 4 ? 1 : shape.size() - 1;
  const int64_t channels = shape[axis];
  if (channels < kFewChannels || s.count() < 4 * channels) return false;
  int64_t inner = 1;
  for (size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
  const auto spreads = [&](const auto& at) {
    const auto n = static_cast<size_t>(channels);
    std::vector<double> sum(n), squares(n);
    for (int64_t i = 0; i < s.count(); ++i) {
      const auto c = static_cast<size_t>(i / inner % channels);
      sum[c] += at(i), squares[c] += at(i) * at(i);
    }
    const double rows = static_cast<double>(s.count()) / static_cast<double>(channels);
    for (size_t c = 0; c < n; ++c)
      squares[c] = std::log(std::max(squares[c] / rows - sum[c] / rows * sum[c] / rows, 1e-30));
    return squares;
  };
  const std::vector<double> ref = spreads([&](int64_t i) { return s.RefAt(i); }),
                            run = spreads([&](int64_t i) { return s.RunAt(i); });
  Relation relation;
  for (size_t c = 0; c < ref.size(); ++c) relation.Take(ref[c], run[c]);
  return relation.covariance() > 0 && relation.Shared() >= kAlike * kAlike;
}

// No linear relation to the reference at all.
std::optional<compare::Hint> UnrelatedHint(const HintSearch& s) {
  if (!s.same_shape() || s.run().values.size() < kEnoughToTell) return {};
  Relation relation;
  for (int64_t i = 0; i < s.count(); ++i) relation.Take(s.RefAt(i), s.RunAt(i));
  if (!(relation.ref_variance() > 0 && relation.run_variance() > 0 && relation.Shared() <= kNoRelation))
    return {};
  const std::string figures = fmt::format(
      "No relation to the reference: the two have {:.1f} % of their variance in common (std {:.3g} "
      "here, {:.3g} there), and no rearrangement or rescaling that was tried fits.",
      100 * relation.Shared(), std::sqrt(relation.run_variance()), std::sqrt(relation.ref_variance()));
  const bool weights = s.context().inputs_agree && HasWeights(s) && !ChannelsSpreadAlike(s);
  return compare::Hint{
      .kind = weights ? "looks_untrained" : "no_relation",
      .text =
          figures + (weights ? " The tensors before this one agree, so its weights are not the "
                               "reference's: never loaded, left at their random start, transposed, or "
                               "another layer's."
                             : " Look at what enters the operation and in which order it is read, then at "
                               "the operation itself."),
      .nmse_before = relation.nmse(),
      .nmse_after = relation.nmse()};
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

HintContext::Reader RowsReaderOf(const record::TensorSet& set) {
  return [&set](const std::string& name) -> std::optional<HintTensor> {
    const record::TensorInfo* info = set.Find(name);
    if (!info) return {};
    return ReadRows(set, *info, kMaxHintElements);
  };
}

// Hypotheses that need nothing but the two tensors, on the first rows of both.
std::vector<compare::Hint> HintsOfRows(const compare::TensorComparison& failed, const HintContext& context) {
  if (!context.ref_rows || !context.run_rows) return {};
  auto ref = context.ref_rows(failed.name), run = context.run_rows(failed.name);
  if (!ref || !run || ref->values.empty() || ref->shape != run->shape || ref->values == run->values)
    return {};
  const std::string part = fmt::format(" (Judged by its first rows, {} of them.)", ToString(ref->shape));
  HintSearch search(failed, context, std::move(*ref), std::move(*run));
  if (auto hint = NonFiniteHint(search)) return {std::move(*hint)};
  for (const auto family : {TestValueHints, TestPrecisionHints, TestLayoutHints}) {
    family(search);
    if (search.explained()) break;
  }
  std::vector<compare::Hint> hints = search.TakeHints();
  for (compare::Hint& hint : hints) hint.text += part;
  return hints;
}

}  // namespace

HintTensor ReadRows(const record::TensorSet& set, const record::TensorInfo& tensor, int64_t most) {
  HintTensor rows{tensor.shape, {}};
  const size_t axis = std::max<size_t>(tensor.shape.size(), 2) - 2;
  if (tensor.count > most && !tensor.shape.empty()) {
    const auto share = static_cast<double>(most) / static_cast<double>(tensor.count);
    rows.shape[axis] =
        std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(tensor.shape[axis])));
  }
  const int64_t kept = ElementCount(rows.shape);
  if (kept > most) return {};  // a single row is larger
  int64_t inner = 1;
  for (size_t a = axis; a < tensor.shape.size(); ++a) inner *= tensor.shape[a];
  const int64_t run = tensor.count > 0 ? kept / (tensor.count / inner) : 0;
  std::vector<double> piece(static_cast<size_t>(run));
  for (int64_t begin = 0; begin < tensor.count; begin += inner) {
    set.Read(tensor, begin, run, piece.data());
    rows.values.insert(rows.values.end(), piece.begin(), piece.end());
  }
  return rows;
}

HintContext MakeHintContext(const record::TensorSet& ref, const record::TensorSet& run) {
  HintContext context{.ref = ReaderOf(ref), .run = ReaderOf(run), .names = {}};
  context.ref_rows = RowsReaderOf(ref);
  context.run_rows = RowsReaderOf(run);
  for (const record::TensorInfo& tensor : ref.tensors()) context.names.push_back(tensor.name);
  context.family = &NamesFor(context.names);
  return context;
}

std::vector<compare::Hint> FindHints(const compare::TensorComparison& failed, const HintContext& context) {
  std::optional<HintTensor> ref = context.ref(failed.name), run = context.run(failed.name);
  if (!ref || !run) {
    std::vector<compare::Hint> hints = HintsOfRows(failed, context);
    if (!hints.empty()) return hints;
    return NotTested(fmt::format(
        "No cause was found: the tensor is missing, or has more than {} million elements, of which "
        "the first were tried.",
        kMaxHintElements >> 20));
  }
  if (ref->values.empty() || run->values.empty()) return {};

  if (compare::SameButForLeadingOnes(ref->shape, run->shape)) run->shape = ref->shape;
  HintSearch search(failed, context, std::move(*ref), std::move(*run));
  if (search.same_shape()) {
    if (auto hint = NonFiniteHint(search)) return {std::move(*hint)};
    if (search.ref().values == search.run().values) return {};  // only the type differs
  }
  for (const auto family : {TestModelHints, TestNormHints, TestValueHints, TestPrecisionHints,
                            TestLayoutHints, TestSequenceHints, TestOtherTensorHints}) {
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
  HintContext context = MakeHintContext(ref, run);
  const compare::TensorComparison* first = comparison.first_divergence();
  int tested = 0;
  for (compare::TensorComparison& tensor : comparison.tensors) {
    if (tensor.passed) continue;
    if (++tested > kMostTested) return;
    context.inputs_agree = &tensor == first;
    tensor.hints = FindHints(tensor, context);
  }
}

}  // namespace qwen_image::hints

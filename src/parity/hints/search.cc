#include "parity/hints/search.h"

#include <fmt/format.h>

#include <algorithm>

namespace qwen_image::hints {
namespace {

// Below this share of the error's energy only the rounding of fp32 is left.
constexpr double kRounding = 1e-8;
// If the tensor has fewer elements than this beyond the fitted numbers, a fit may be chance and must be
// exact.
constexpr int64_t kFewElements = 16;

}  // namespace

HintSearch::HintSearch(const compare::TensorComparison& failed, const HintContext& context, HintTensor ref,
                       HintTensor run)
    : failed_(failed),
      context_(context),
      family_(context.family ? context.family : &NamesFor(context.names)),
      ref_(std::move(ref)),
      run_(std::move(run)) {
  int64_t finite = 0;
  for (int64_t i = 0; i < count(); ++i) {
    const double difference = same_shape() ? RunAt(i) - RefAt(i) : RunAt(i);
    if (!std::isfinite(difference)) continue;
    mean_square_before_ += difference * difference;
    ++finite;
  }
  if (finite > 0) mean_square_before_ /= static_cast<double>(finite);
}

std::optional<HintTensor> HintSearch::OtherRef(const std::string& name, int64_t elements) const {
  std::optional<HintTensor> tensor = context_.ref(name);
  if (!tensor || static_cast<int64_t>(tensor->values.size()) != elements) return {};
  return tensor;
}

std::optional<HintSearch::Fit> HintSearch::Judge(const Energy& energy, Terms terms) const {
  if (energy.broken || energy.judged == 0 || 2 * terms.fitted > energy.judged) return {};
  if (static_cast<double>(energy.judged) < terms.least_share * static_cast<double>(count())) return {};
  const double scale = energy.ref > 0 ? energy.ref : energy.expected > 0 ? energy.expected : 1;
  // The remaining error must also be small beside the run's own values: a tiny tensor is near every tiny
  // multiple of the reference.
  if (!(energy.after <= 0.1 * energy.run)) return {};
  const Fit fit{.before = same_shape() ? energy.before / scale : std::nan(""), .after = energy.after / scale};
  const double from = same_shape() ? fit.before : 1;  // tensors without relation have an NMSE about 1
  if (terms.fitted > 0 && energy.judged - terms.fitted < kFewElements) {
    if (!(fit.after <= kRounding * from)) return {};
    return fit;
  }
  const bool collapses =
      fit.after <= kCollapse * from && fit.after < from && energy.after <= kCollapse * energy.run;
  const compare::Criterion& c = failed_.criterion;
  const bool within_floor = c.kind == compare::Criterion::Kind::kFloor && fit.after <= 0.1 * from &&
                            fit.after <= c.factor * c.factor * c.floor;
  if (!collapses && !within_floor) return {};
  return fit;
}

void HintSearch::Add(std::string kind, Fit fit, std::string text) {
  const std::string figures =
      same_shape() ? fmt::format(" With that change NMSE {:.2g} → {:.2g}.", fit.before, fit.after)
                   : fmt::format(" With that change the NMSE is {:.2g}.", fit.after);
  hints_.push_back({.kind = std::move(kind),
                    .text = std::move(text) + figures,
                    .nmse_before = fit.before,
                    .nmse_after = fit.after});
}

bool HintSearch::explained() const {
  return std::any_of(hints_.begin(), hints_.end(), [&](const compare::Hint& hint) {
    return hint.nmse_after <= kRounding * (same_shape() ? hint.nmse_before : 1);
  });
}

std::vector<compare::Hint> HintSearch::TakeHints() {
  const auto leaves_rounding_only = [&](const compare::Hint& hint) {
    return hint.nmse_after <= kRounding * (same_shape() ? hint.nmse_before : 1);
  };
  // The most specific hypotheses were tried first. An exact fit still beats an approximate one.
  std::stable_partition(hints_.begin(), hints_.end(), leaves_rounding_only);
  return std::move(hints_);
}

}  // namespace qwen_image::hints

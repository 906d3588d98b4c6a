#include "prove/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "parity/compare/criterion.h"
#include "parity/record/level.h"
#include "parity/report/text.h"

namespace qwen_image::prove {
namespace {

// A known range comes from one run: other prompts and sizes differ by this factor.
constexpr double kTolerated = 4;

double NmseOf(const compare::TensorComparison& tensor) {
  return tensor.error ? tensor.error->nmse : std::nan("");
}

// NaN is the worst.
double Worse(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

bool IsBroken(const compare::TensorStats& stats) { return stats.nan > 0 || stats.inf > 0; }

struct BlockRow {
  double isolated = 0, accumulated = 0;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  double squares = 0, tensors = 0;
  int64_t nan = 0, inf = 0;
  bool unusual = false;

  void AddValues(const compare::TensorComparison& t, const std::optional<ValueRange>& known) {
    min = std::min(min, t.ref.min);
    max = std::max(max, t.ref.max);
    squares += t.ref.mean * t.ref.mean + t.ref.std * t.ref.std;
    ++tensors;
    nan += t.ref.nan + t.run.nan;
    inf += t.ref.inf + t.run.inf;
    if (!known) return;
    const double reach = kTolerated * std::max(std::abs(known->min), std::abs(known->max));
    unusual = unusual || t.ref.min < -reach || t.ref.max > reach;
  }
};

}  // namespace

Json BlockTable(const CheckpointNames& names, const Comparisons& comparisons,
                std::optional<ValueRange> (*known)(std::string_view checkpoint)) {
  std::map<std::pair<int64_t, std::string>, BlockRow> rows;
  const auto row_of = [&](const std::string& checkpoint) -> BlockRow* {
    const auto block = ParseBlockName(names, checkpoint);
    if (!block || block->list != names.denoiser_blocks) return nullptr;
    return &rows[{block->index, block->rest}];
  };
  for (const compare::TensorComparison& t : comparisons.isolated.tensors) {
    if (BlockRow* row = row_of(t.name)) row->isolated = Worse(row->isolated, NmseOf(t));
  }
  for (const compare::TensorComparison& t : comparisons.accumulated.tensors) {
    BlockRow* row = row_of(t.name);
    if (!row) continue;
    row->accumulated = Worse(row->accumulated, NmseOf(t));
    row->AddValues(t, known ? known(t.name) : std::nullopt);
  }
  Json table = Json::array();
  for (const auto& [place, row] : rows) {
    const std::string& stream = place.second;
    table.push_back({{"block", place.first},
                     {"stream", stream.empty() ? "" : stream.substr(1)},
                     {"isolated", row.isolated},
                     {"accumulated", row.accumulated},
                     {"min", row.min},
                     {"max", row.max},
                     {"rms", std::sqrt(row.squares / row.tensors)},
                     {"nan", row.nan},
                     {"inf", row.inf},
                     {"unusual", row.unusual}});
  }
  return table;
}

Json StepTable(const compare::Comparison& accumulated) {
  Json table = Json::array();
  for (const compare::TensorComparison& t : accumulated.tensors) {
    if (const auto step = record::NumberAfter(t.name, "noise_pred_step"))
      table.push_back({{"step", *step}, {"nmse", NmseOf(t)}});
  }
  return table;
}

Json Verdict(const compare::Comparison& comparison) {
  const compare::TensorComparison* worst = nullptr;
  for (const compare::TensorComparison& t : comparison.tensors) {
    if (!worst || report::Severity(t) > report::Severity(*worst)) worst = &t;
  }
  const auto failed = std::count_if(comparison.tensors.begin(), comparison.tensors.end(),
                                    [](const auto& t) { return !t.passed; });
  Json json = {{"passed", comparison.passed()},
               {"tensors", comparison.tensors.size()},
               {"failed", failed},
               {"missing", comparison.missing.size()},
               {"extra", comparison.extra.size()}};
  if (const compare::TensorComparison* first = comparison.first_divergence())
    json["first_failed"] = first->name;
  if (worst) {
    json["nearest_to_its_limit"] = {
        {"name", worst->name}, {"nmse", NmseOf(*worst)}, {"limit", compare::Describe(worst->criterion)}};
  }
  return json;
}

bool Identical(const compare::Comparison& comparison) {
  return comparison.missing.empty() && comparison.extra.empty() &&
         std::all_of(comparison.tensors.begin(), comparison.tensors.end(),
                     [](const auto& t) { return t.error && t.error->max_abs == 0; });
}

std::string FirstBroken(const compare::Comparison& comparison) {
  for (const compare::TensorComparison& t : comparison.tensors) {
    if (IsBroken(t.ref) || IsBroken(t.run)) return t.name;
  }
  return "";
}

}  // namespace qwen_image::prove

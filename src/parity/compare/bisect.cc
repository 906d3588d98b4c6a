#include "parity/compare/bisect.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "parity/record/level.h"

namespace qwen_image::compare {
namespace {

// "transformer/step000/transformer_blocks.3:img" → "transformer/step000/transformer_blocks.3*": everything
// inside the block. Streams of a block and modules below it share that beginning.
std::string InsideOf(const std::string& block) {
  const size_t slash = block.rfind('/'), colon = block.rfind(':');
  return block.substr(0, colon != block.npos && colon > slash ? colon : block.size());
}

double Nmse(const TensorComparison& t) {
  return t.error ? t.error->nmse : std::numeric_limits<double>::quiet_NaN();
}

class Search {
 public:
  explicit Search(const BisectRunner& run) : run_(run) {}

  BisectResult Go() {
    // 1. Which boundary is the first to fail?
    const Comparison boundaries = Run({.component = "", .step = {}, .checkpoints = "boundaries"});
    const TensorComparison* bad = boundaries.first_divergence();
    if (!bad) return NothingFound(boundaries);
    Note(*bad);
    result_.component = record::ComponentThatMakes(bad->name);
    result_.step = record::NumberAfter(bad->name, "noise_pred_step");
    if (result_.component.empty()) return PipelineItself(bad->name);

    // 2. The component alone on the reference's inputs: which block?
    const std::string boundary = bad->name;
    if (!Narrow("blocks")) return ComponentInputs(boundary);

    // 3. Inside that block, which operation?
    const BisectResult blocks = result_;
    if (!Narrow(InsideOf(result_.first_bad) + ":*," + InsideOf(result_.first_bad) + ".*," +
                InsideOf(result_.first_bad))) {
      result_ = blocks;
    }
    Conclude();
    return result_;
  }

 private:
  Comparison Run(const BisectPlan& plan) {
    Comparison comparison = run_(plan);
    const auto failed = std::count_if(comparison.tensors.begin(), comparison.tensors.end(),
                                      [](const TensorComparison& t) { return !t.passed; });
    const TensorComparison* first = comparison.first_divergence();
    result_.rounds.push_back(
        {plan, comparison.tensors.size(), static_cast<size_t>(failed), first ? first->name : ""});
    return comparison;
  }

  void Note(const TensorComparison& bad) {
    result_.first_bad = bad.name;
    result_.evidence = bad;
  }

  // Runs the component twice at these checkpoints, once computing everything itself and once each operation
  // alone. False if nothing is compared or nothing fails there.
  bool Narrow(const std::string& checkpoints) {
    BisectPlan plan{.component = result_.component, .step = result_.step, .checkpoints = checkpoints};
    const Comparison accumulated = Run(plan);
    const TensorComparison* bad = accumulated.first_divergence();
    if (!bad) return false;
    plan.isolated = true;
    const Comparison isolated = Run(plan);

    std::map<std::string, const TensorComparison*> alone;
    for (const TensorComparison& t : isolated.tensors) alone[t.name] = &t;
    result_.rows.clear();
    for (const TensorComparison& t : accumulated.tensors) {
      BisectRow row{.name = t.name, .accumulated = Nmse(t), .isolated = {}, .accumulated_failed = !t.passed};
      if (const auto found = alone.find(t.name); found != alone.end()) {
        row.isolated = Nmse(*found->second);
        row.isolated_failed = !found->second->passed;
      }
      result_.rows.push_back(row);
    }
    Note(*bad);
    result_.culprit.clear();
    if (const TensorComparison* own = isolated.first_divergence()) {
      result_.culprit = own->name;
      result_.evidence = *own;
    }
    return true;
  }

  BisectResult NothingFound(const Comparison& boundaries) {
    result_.conclusion =
        boundaries.tensors.empty()
            ? "nothing could be compared: the reference holds none of this run's checkpoints"
            : fmt::format("no divergence: all {} checkpoints between the components agree with the reference",
                          boundaries.tensors.size());
    return result_;
  }

  // Outside the components (tokenizer, schedule, packing) one operation lies between two boundaries.
  BisectResult PipelineItself(const std::string& boundary) {
    const Comparison isolated =
        Run({.component = "", .step = {}, .checkpoints = "boundaries", .isolated = true});
    for (const TensorComparison& t : isolated.tensors) {
      if (t.name == boundary && !t.passed) {
        result_.culprit = boundary;
        result_.evidence = t;
      }
    }
    result_.conclusion =
        result_.culprit.empty()
            ? fmt::format(
                  "{} fails, but not when it starts from the reference's tensors: the error comes from "
                  "before it and stayed below the limit there",
                  boundary)
            : fmt::format(
                  "{} is computed wrongly from the reference's own inputs, outside of the components: "
                  "tokenizer, picture processors, schedule, noise or the packing of latents",
                  boundary);
    return result_;
  }

  BisectResult ComponentInputs(const std::string& boundary) {
    result_.conclusion = fmt::format(
        "{} fails in the whole run, but {} alone agrees on the reference's inputs wherever it can be "
        "compared: "
        "the error comes from its inputs, or the reference holds no checkpoint inside it (export it with "
        "--checkpoints all)",
        boundary, result_.component);
    return result_;
  }

  void Conclude() {
    const auto made = std::count_if(result_.rows.begin(), result_.rows.end(),
                                    [](const BisectRow& r) { return r.isolated_failed; });
    const bool deep = std::any_of(result_.rows.begin(), result_.rows.end(), [](const BisectRow& r) {
      return record::LevelOf(r.name) > record::CheckpointLevel::kBlocks;
    });
    if (result_.culprit.empty()) {
      result_.conclusion =
          fmt::format("the run leaves the reference at {}, but no operation fails alone: small errors add up",
                      result_.first_bad);
    } else if (2 * made > static_cast<int64_t>(result_.rows.size()) && made > 2) {
      result_.conclusion = fmt::format(
          "{} of {} operations fail even on the reference's inputs, the first is {}: other weights, or "
          "arithmetic "
          "of another precision, rather than one bug",
          made, result_.rows.size(), result_.culprit);
    } else {
      result_.conclusion =
          fmt::format("{} makes the error: it fails on the reference's own inputs", result_.culprit);
    }
    if (!deep)
      result_.conclusion +=
          "; the reference holds no checkpoints inside it: export it with --checkpoints all to "
          "look deeper";
  }

  const BisectRunner& run_;
  BisectResult result_;
};

const char* Role(const BisectRow& row) {
  if (row.isolated_failed) return "MAKES the error";
  if (row.accumulated_failed) return "carries it";
  return "";
}

std::string PlanText(const BisectPlan& plan) {
  std::string text = plan.component.empty() ? "whole pipeline" : plan.component + " alone";
  if (plan.step) text += fmt::format(", step {}", *plan.step);
  if (plan.isolated) text += ", each operation on the reference's inputs";
  return text;
}

}  // namespace

BisectResult Bisect(const BisectRunner& run) { return Search(run).Go(); }

std::string BisectText(const BisectResult& result) {
  std::string text;
  for (const BisectRound& round : result.rounds) {
    text += fmt::format("{}: {} compared, {} failed{}\n", PlanText(round.plan), round.compared, round.failed,
                        round.first_bad.empty() ? "" : ", first " + round.first_bad);
  }
  if (!result.rows.empty()) {
    size_t widest = 10;
    for (const BisectRow& row : result.rows) widest = std::max(widest, row.name.size());
    text += fmt::format("\n{:<{}} {:>12} {:>12}\n", "checkpoint", widest, "accumulated", "isolated");
    for (const BisectRow& row : result.rows) {
      const std::string isolated = row.isolated ? fmt::format("{:.2e}", *row.isolated) : "-";
      std::string line =
          fmt::format("{:<{}} {:>12.2e} {:>12}  {}", row.name, widest, row.accumulated, isolated, Role(row));
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  }
  return text + "\n" + result.conclusion + "\n";
}

Json BisectJson(const BisectResult& result) {
  Json rounds = Json::array(), rows = Json::array();
  for (const BisectRound& r : result.rounds) {
    rounds.push_back({{"component", r.plan.component},
                      {"checkpoints", r.plan.checkpoints},
                      {"isolated", r.plan.isolated},
                      {"compared", r.compared},
                      {"failed", r.failed},
                      {"first_bad", r.first_bad}});
  }
  for (const BisectRow& r : result.rows) {
    rows.push_back({{"name", r.name},
                    {"accumulated_nmse", r.accumulated},
                    {"isolated_nmse", r.isolated ? Json(*r.isolated) : Json()},
                    {"accumulated_failed", r.accumulated_failed},
                    {"isolated_failed", r.isolated_failed}});
  }
  return {{"first_bad", result.first_bad},   {"culprit", result.culprit},   {"component", result.component},
          {"conclusion", result.conclusion}, {"rounds", std::move(rounds)}, {"checkpoints", std::move(rows)}};
}

}  // namespace qwen_image::compare

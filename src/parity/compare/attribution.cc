#include "parity/compare/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>

#include "files/text.h"
#include "parity/record/level.h"

namespace qwen_image::compare {
namespace {

// A recipe is useful only if few matrices make most of the error.
constexpr double kWantedShare = 0.5;
constexpr double kMostMatrices = 0.4;
constexpr double kOutlier = 4;  // times the median of its kind

// One tensor of the runs, with the errors that are known.
struct Sample {
  CheckpointRole role;
  double elements = 0;
  std::optional<double> accumulated, isolated;
};

const CheckpointNames& NamesIn(const Comparison* comparison) {
  std::vector<std::string> checkpoints;
  if (comparison) {
    for (const TensorComparison& t : comparison->tensors) checkpoints.push_back(t.name);
  }
  return NamesFor(checkpoints);
}

void AddSamples(const Comparison& comparison, const CheckpointNames& names,
                std::optional<double> Sample::*error, std::map<std::string, Sample>* samples,
                int64_t* left_out) {
  for (const TensorComparison& t : comparison.tensors) {
    if (record::LevelOf(t.name) == record::CheckpointLevel::kBoundaries || t.name.find('/') == t.name.npos)
      continue;
    if (!t.error || !std::isfinite(t.error->nmse)) {
      ++*left_out;
      continue;
    }
    Sample& sample = (*samples)[t.name];
    if (sample.elements == 0)
      sample = {.role = RoleOf(names, t.name), .elements = static_cast<double>(ElementCount(t.ref.shape))};
    sample.*error = t.error->nmse;
  }
}

class GroupSum {
 public:
  void Add(const Sample& s) {
    ++tensors_;
    elements_ += s.elements;
    if (s.accumulated) accumulated_ = accumulated_.value_or(0) + *s.accumulated * s.elements;
    if (s.isolated) isolated_ = isolated_.value_or(0) + *s.isolated * s.elements;
    if (s.accumulated && s.isolated)
      carried_ = carried_.value_or(0) + std::max(0.0, *s.accumulated - *s.isolated) * s.elements;
  }

  AttributedError Finish(const std::string& component, const std::string& what) const {
    const auto mean = [&](std::optional<double> sum) {
      return sum && elements_ > 0 ? std::optional(*sum / elements_) : sum;
    };
    return {component, what, tensors_, mean(accumulated_), mean(isolated_), mean(carried_)};
  }

 private:
  int64_t tensors_ = 0;
  double elements_ = 0;
  std::optional<double> accumulated_, isolated_, carried_;
};

// One weight matrix: its error over all steps.
struct Matrix {
  CheckpointRole role;
  double energy = 0;
};

std::vector<Matrix> MatricesOf(const std::map<std::string, Sample>& samples) {
  std::map<std::tuple<std::string, std::string, int64_t, std::string>, Matrix> matrices;
  for (const auto& [name, s] : samples) {
    if (!s.role.is_matrix || !s.isolated) continue;
    Matrix& matrix = matrices[{s.role.component, s.role.blocks, s.role.block, s.role.module}];
    matrix.role = s.role;
    matrix.energy += *s.isolated * s.elements;
  }
  std::vector<Matrix> list;
  for (const auto& [key, matrix] : matrices) list.push_back(matrix);
  std::stable_sort(list.begin(), list.end(),
                   [](const Matrix& a, const Matrix& b) { return a.energy > b.energy; });
  return list;
}

std::string GlobOf(const CheckpointRole& role, const std::string& block) {
  return role.blocks.empty() ? role.module : fmt::format("{}.{}.{}", role.blocks, block, role.module);
}

// One line of a recipe: the outliers among the blocks of one kind of matrix, or all matrices of the kind.
struct Choice {
  std::vector<const Matrix*> matrices;
  std::string globs;
  double energy = 0;
  size_t kind = 0;

  double per_matrix() const { return energy / static_cast<double>(matrices.size()); }
};

Choice ChoiceOf(std::vector<const Matrix*> matrices, bool whole_kind, size_t kind) {
  Choice choice{.kind = kind};
  std::sort(matrices.begin(), matrices.end(),
            [](const Matrix* a, const Matrix* b) { return a->role.block < b->role.block; });
  for (const Matrix* matrix : matrices) {
    choice.energy += matrix->energy;
    if (!whole_kind)
      choice.globs +=
          (choice.globs.empty() ? "" : ",") + GlobOf(matrix->role, std::to_string(matrix->role.block));
  }
  if (whole_kind) choice.globs = GlobOf(matrices.front()->role, "*");
  choice.matrices = std::move(matrices);
  return choice;
}

// Both choices of every kind, those with the most error for each matrix first.
std::vector<Choice> ChoicesOf(const std::vector<Matrix>& matrices) {
  std::map<std::pair<std::string, std::string>, std::vector<const Matrix*>>
      kinds;  // each with the worst first
  for (const Matrix& matrix : matrices) kinds[{matrix.role.blocks, matrix.role.module}].push_back(&matrix);
  std::vector<Choice> choices;
  size_t kind = 0;
  for (const auto& [key, all] : kinds) {
    const double median = all[all.size() / 2]->energy;
    std::vector<const Matrix*> outliers;
    std::copy_if(all.begin(), all.end(), std::back_inserter(outliers),
                 [&](const Matrix* matrix) { return matrix->energy > kOutlier * median; });
    if (!outliers.empty()) choices.push_back(ChoiceOf(outliers, false, kind));
    choices.push_back(ChoiceOf(all, true, kind++));
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.per_matrix() > b.per_matrix(); });
  return choices;
}

MixedRecipe RecipeOf(const std::vector<Matrix>& matrices) {
  MixedRecipe recipe;
  double total = 0;
  for (const Matrix& matrix : matrices) total += matrix.energy;
  if (!(total > 0)) {
    recipe.advice = "there is no weights-only error to remove";
    return recipe;
  }
  std::map<size_t, Choice> taken;  // by kind; a choice of the whole kind replaces that of its outliers
  double covered = 0;
  size_t count = 0;
  for (Choice& choice : ChoicesOf(matrices)) {
    if (covered >= kWantedShare * total) break;
    Choice& slot = taken[choice.kind];
    if (slot.matrices.size() >= choice.matrices.size()) continue;
    covered += choice.energy - slot.energy;
    count += choice.matrices.size() - slot.matrices.size();
    slot = std::move(choice);
  }
  if (static_cast<double>(count) > kMostMatrices * static_cast<double>(matrices.size())) {
    recipe.advice = fmt::format(
        "the error is spread evenly: half of it needs {} of {} matrices, so no mixed recipe stands out",
        count, matrices.size());
    return recipe;
  }
  for (const auto& [kind, choice] : taken) recipe.keeps.push_back({choice.globs, choice.energy / total});
  std::stable_sort(recipe.keeps.begin(), recipe.keeps.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  recipe.share = covered / total;
  return recipe;
}

std::string Figure(std::optional<double> value) { return value ? fmt::format("{:.2e}", *value) : "-"; }

void AddTable(std::string_view title, const std::vector<AttributedError>& rows, std::string* text) {
  if (rows.empty()) return;
  *text += fmt::format("{:<14} {:<16} {:>8} {:>12} {:>13} {:>12}\n", "component", title, "tensors",
                       "accumulated", "weights-only", "carried");
  for (const AttributedError& row : rows) {
    *text += fmt::format("{:<14} {:<16} {:>8} {:>12} {:>13} {:>12}\n", Printable(row.component),
                         Printable(row.what), row.tensors, Figure(row.accumulated), Figure(row.weights_only),
                         Figure(row.carried));
  }
}

Json RowsJson(const std::vector<AttributedError>& rows) {
  const auto number = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  Json json = Json::array();
  for (const AttributedError& row : rows)
    json.push_back({{"component", row.component},
                    {"what", row.what},
                    {"tensors", row.tensors},
                    {"accumulated", number(row.accumulated)},
                    {"weights_only", number(row.weights_only)},
                    {"carried", number(row.carried)}});
  return json;
}

}  // namespace

CheckpointRole RoleOf(const CheckpointNames& names, std::string_view checkpoint) {
  CheckpointRole result{.component = record::ComponentOf(checkpoint)};
  std::string_view module = ModuleOf(checkpoint);
  const std::optional<BlockName> block = ParseBlockName(names, checkpoint);
  if (block) {
    result.blocks = block->list;
    result.block = block->index;
    module = block->rest;
    if (module.starts_with('.')) module.remove_prefix(1);
  }
  result.module = module;
  const std::string_view role = MatrixRoleOf(names, module);
  result.is_matrix = !role.empty();
  result.role = result.is_matrix ? role : module.find("norm") != module.npos ? "norm" : "other";
  return result;
}

Attribution Attribute(const Comparison* accumulated, const Comparison* isolated) {
  Attribution result;
  std::map<std::string, Sample> samples;
  const CheckpointNames& names = NamesIn(accumulated ? accumulated : isolated);
  if (accumulated) AddSamples(*accumulated, names, &Sample::accumulated, &samples, &result.left_out);
  if (isolated) AddSamples(*isolated, names, &Sample::isolated, &samples, &result.left_out);
  std::map<std::pair<std::string, std::string>, GroupSum> roles;
  std::map<std::tuple<std::string, std::string, int64_t>, GroupSum> blocks;
  for (const auto& [name, sample] : samples) {
    roles[{sample.role.component, sample.role.role}].Add(sample);
    if (sample.role.block >= 0)
      blocks[{sample.role.component, sample.role.blocks, sample.role.block}].Add(sample);
  }
  for (const auto& [key, sum] : roles) result.by_role.push_back(sum.Finish(key.first, key.second));
  for (const auto& [key, sum] : blocks)
    result.by_block.push_back(sum.Finish(std::get<0>(key), fmt::format("block {}", std::get<2>(key))));
  if (isolated) {
    result.recipe = RecipeOf(MatricesOf(samples));
  } else {
    result.recipe.advice =
        "the weights-only error is not known: record the run once more with --checkpoints all --substitute "
        "'*' and give "
        "it as --isolated";
  }
  return result;
}

bool IsIsolatedRun(const Json& manifest) {
  const auto found = manifest.is_object() ? manifest.find("substituted") : manifest.end();
  return found != manifest.end() && found->is_array() &&
         std::find(found->begin(), found->end(), "*") != found->end();
}

std::string AttributionText(const Attribution& a) {
  std::string text = "\nwho makes the error (mean NMSE, weighted by elements)\n";
  AddTable("role", a.by_role, &text);
  AddTable("block", a.by_block, &text);
  if (a.left_out > 0) text += fmt::format("{} tensors with NaN or another shape were left out\n", a.left_out);
  text += "mixed recipe:";
  if (a.recipe.keeps.empty()) return text + " " + a.recipe.advice + "\n";
  text += fmt::format(" removes about {:.0f} % of the weights-only error\n", 100 * a.recipe.share);
  for (const MixedRecipe::Keep& keep : a.recipe.keeps)
    text += fmt::format("  keep {} at 8 bits  # {:.1f} %\n", Printable(keep.globs), 100 * keep.share);
  return text;
}

Json AttributionJson(const Attribution& a) {
  Json keeps = Json::array();
  for (const MixedRecipe::Keep& keep : a.recipe.keeps)
    keeps.push_back({{"keep", keep.globs}, {"bits", 8}, {"share", keep.share}});
  return {{"by_role", RowsJson(a.by_role)}, {"by_block", RowsJson(a.by_block)}, {"recipe", keeps},
          {"recipe_share", a.recipe.share}, {"advice", a.recipe.advice},        {"left_out", a.left_out}};
}

}  // namespace qwen_image::compare

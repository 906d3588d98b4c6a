#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "files/text.h"
#include "inspect_report.h"
#include "text_table.h"
#include "weights/names.h"

namespace qwen_image::cli {
namespace {

constexpr size_t kRows = 20;  // unless more are asked for

std::string Percent(double relative) {
  if (std::isnan(relative)) return "NaN";
  return relative == 0 ? "0" : fmt::format("{:.3g}%", 100 * relative);
}

std::string Types(const inspect::TensorDifference& d) {
  return d.format_a == d.format_b ? d.format_a : d.format_a + " → " + d.format_b;
}

std::string TableText(const TextTable& table, const TextStyle& style) {
  std::string text;
  for (const std::string& line : table.Lines()) text += (text.empty() ? style.Dim(line) : line) + "\n";
  return text;
}

// Names that one side lacks, folded by role, with what the other side has instead.
std::string OnlyText(const std::string& title, const std::vector<std::string>& names,
                     const std::vector<std::string>& others, const InspectReportOptions& options) {
  std::map<std::string, std::vector<std::string>> roles;
  for (const std::string& name : names) roles[RoleOf(name)].push_back(name);
  std::string text = fmt::format("  {}: {}\n", options.style.Yellow(title), names.size());
  size_t shown = 0;
  for (const auto& [role, members] : roles) {
    if (!options.full && ++shown > options.top.value_or(kRows)) {
      return text + fmt::format("    … and {} more kinds (--full shows all)\n", roles.size() - shown + 1);
    }
    const std::vector<std::string> nearest = NearestNames(members[0], others, 1);
    text += fmt::format(
        "    {}{}\n", Printable(FoldedName(members)),
        nearest.empty() ? "" : options.style.Dim(fmt::format("  (like {}?)", Printable(nearest[0]))));
  }
  return text;
}

bool Less(const inspect::TensorDifference& a, const inspect::TensorDifference& b, WeightOrder order) {
  if (order == WeightOrder::kMax) return a.max_abs > b.max_abs;
  if (order == WeightOrder::kBytes) return ElementCount(a.shape_a) > ElementCount(b.shape_a);
  return a.name < b.name;
}

std::string TensorsText(const inspect::ComponentDiff& component, const InspectReportOptions& options) {
  std::vector<const inspect::TensorDifference*> differing;
  for (const inspect::TensorDifference& d : component.tensors) {
    if (!d.identical() || d.format_a != d.format_b) differing.push_back(&d);
  }
  if (differing.empty()) return "";
  if (options.order != WeightOrder::kError) {
    std::stable_sort(differing.begin(), differing.end(),
                     [&](const auto* a, const auto* b) { return Less(*a, *b, options.order); });
  }
  TextTable table(
      {{"  name", false}, {"type", false}, {"error"}, {"max_abs"}, {"nmse"}, {"cosine"}, {"", false}});
  const size_t shown =
      options.full ? differing.size() : std::min(differing.size(), options.top.value_or(kRows));
  for (size_t i = 0; i < shown; ++i) {
    const inspect::TensorDifference& d = *differing[i];
    const std::string name = "  " + Printable(d.name);
    if (!d.problem.empty()) {
      table.AddRow({name, Types(d), "", "", "", "", "← " + d.problem});
    } else {
      table.AddRow({name, Types(d), Percent(d.relative()), ShortNumber(d.max_abs), ShortNumber(d.nmse),
                    fmt::format("{:.6f}", d.cosine), std::isnan(d.nmse) ? "← NaN or Inf on one side" : ""});
    }
  }
  std::string text = TableText(table, options.style);
  if (shown < differing.size()) {
    text += options.style.Dim(
                fmt::format("  … and {} more (--top N or --full shows them)", differing.size() - shown)) +
            "\n";
  }
  return text;
}

std::string RolesText(const inspect::ComponentDiff& component, const InspectReportOptions& options) {
  const std::vector<inspect::RoleDifference> roles = component.Roles();
  if (roles.size() < 2) return "";
  TextTable table({{"  by role", false}, {"tensors"}, {"mean error"}, {"max error"}, {"max_abs"}});
  const size_t shown = options.full ? roles.size() : std::min(roles.size(), options.top.value_or(kRows));
  for (size_t i = 0; i < shown; ++i) {
    const inspect::RoleDifference& role = roles[i];
    table.AddRow({"  " + Printable(role.name), std::to_string(role.tensors), Percent(role.mean_relative),
                  Percent(role.max_relative), ShortNumber(role.max_abs)});
  }
  std::string text = fmt::format("\n{}", TableText(table, options.style));
  if (shown < roles.size())
    text += options.style.Dim(fmt::format("  … and {} more", roles.size() - shown)) + "\n";
  return text;
}

std::string ComponentText(const inspect::ComponentDiff& component, const InspectReportOptions& options) {
  const size_t identical = component.identical(), both = component.tensors.size();
  const auto within = static_cast<size_t>(std::count_if(
      component.tensors.begin(), component.tensors.end(),
      [&](const inspect::TensorDifference& d) { return !d.identical() && d.Within(options.tolerance); }));
  const std::string name = component.name_a == component.name_b
                               ? Printable(component.name_a)
                               : Printable(component.name_a) + " against " + Printable(component.name_b);
  std::string text = fmt::format("{}  {} tensors in both: {} with equal values, {} with others{}\n",
                                 options.style.Bold(name), both, identical, both - identical,
                                 within ? fmt::format(" ({} of these within the tolerance)", within) : "");
  if (options.quiet) return text;
  if (!component.only_in_a.empty())
    text += OnlyText("only in A", component.only_in_a, component.only_in_b, options);
  if (!component.only_in_b.empty())
    text += OnlyText("only in B", component.only_in_b, component.only_in_a, options);
  return text + TensorsText(component, options) + RolesText(component, options);
}

}  // namespace

std::string WeightDiffText(const inspect::WeightDiff& diff, const InspectReportOptions& options) {
  std::string text = fmt::format("A  {}\nB  {}\n\n", Printable(diff.path_a.string(), 1000),
                                 Printable(diff.path_b.string(), 1000));
  for (const inspect::ComponentDiff& component : diff.components)
    text += ComponentText(component, options) + "\n";
  for (const std::string& name : diff.components_only_in_a)
    text += fmt::format("{}  only in A\n", Printable(name));
  for (const std::string& name : diff.components_only_in_b)
    text += fmt::format("{}  only in B\n", Printable(name));
  for (const inspect::ConfigDifference& config : diff.configs)
    text += fmt::format("{}  differs: {}\n", config.file, config.text);
  text += FindingsText(diff.broken, options);
  if (!diff.Equal(options.tolerance)) {
    const char* hint =
        options.tolerance > 0 ? "" : " (--tolerance 0.1 would accept relative errors up to 10%)";
    return text + options.style.Red("They differ") + hint + ".\n";
  }
  return text + options.style.Green(options.tolerance > 0 ? "Equal within the tolerance.\n" : "Equal.\n");
}

}  // namespace qwen_image::cli

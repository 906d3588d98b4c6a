// What a RunChecker found, for tools and for people.
#include <fmt/format.h>

#include <map>

#include "parity/run_recorder.h"

namespace qwen_image {
namespace {

std::string ComponentOf(const std::string& name) {
  if (LevelOf(name) == CheckpointLevel::kBoundaries && name != "image") return "pipeline";
  for (const char* component : {"text_encoder", "transformer", "vae"}) {
    if (name.starts_with(component)) return component;
  }
  return name == "image" ? "image" : "pipeline";
}

// How near the limit: 1 is at the limit. NaN and incomparable tensors come first.
double Severity(const CheckedTensor& t) {
  if (!t.passed()) return 1e300;
  return t.tolerance.limit > 0 ? t.tolerance.Value(t.difference) / t.tolerance.limit : 0;
}

std::string Describe(const CheckedTensor& t) {
  if (!t.problem.empty()) return t.problem;
  return fmt::format("{} {:.2e} (limit {:.0e})", t.tolerance.name(), t.tolerance.Value(t.difference),
                     t.tolerance.limit);
}

}  // namespace

Json ReportJson(const RunChecker& checker) {
  Json rows = Json::array();
  for (const CheckedTensor& t : checker.checked()) {
    rows.push_back({{"name", t.name},
                    {"component", ComponentOf(t.name)},
                    {"shape", t.shape},
                    {"max_abs", t.difference.max_abs},
                    {"nmse", t.difference.nmse},
                    {"measure", t.tolerance.name()},
                    {"limit", t.tolerance.limit},
                    {"problem", t.problem},
                    {"passed", t.passed()}});
  }
  return {{"passed", checker.passed()},
          {"checkpoints", rows},
          {"missing", checker.missing()},
          {"extra", checker.extra()}};
}

std::string ReportText(const RunChecker& checker) {
  struct Group {
    int64_t count = 0, failed = 0;
    const CheckedTensor* worst = nullptr;
  };
  std::map<std::string, Group> groups;
  const CheckedTensor* first_failure = nullptr;
  for (const CheckedTensor& t : checker.checked()) {
    Group& group = groups[ComponentOf(t.name)];
    ++group.count;
    group.failed += !t.passed();
    if (!group.worst || Severity(t) > Severity(*group.worst)) group.worst = &t;
    if (!t.passed() && !first_failure) first_failure = &t;
  }
  std::string text =
      fmt::format("{:<14} {:>7} {:>7}  nearest to its limit\n", "component", "tensors", "failed");
  for (const auto& [component, group] : groups) {
    text += fmt::format("{:<14} {:>7} {:>7}  {}: {}\n", component, group.count, group.failed,
                        group.worst->name, Describe(*group.worst));
  }
  for (const std::string& name : checker.missing())
    text += fmt::format("missing: {} (in the reference only)\n", name);
  for (const std::string& name : checker.extra())
    text += fmt::format("extra: {} (not in the reference)\n", name);
  if (first_failure) {
    text += fmt::format("first divergence: {} {}, element {}: {}\n", first_failure->name,
                        ToString(first_failure->shape), first_failure->difference.worst,
                        Describe(*first_failure));
  }
  return text + (checker.passed() ? "parity: passed\n" : "parity: FAILED\n");
}

}  // namespace qwen_image

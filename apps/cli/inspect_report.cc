#include "inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "files/text.h"
#include "text_table.h"
#include "weight_tree.h"

namespace qwen_image::cli {
namespace {

constexpr size_t kMaxFindings = 40;  // of one component, unless all are asked for

// kind → what stands beside a tensor in the table.
const std::map<std::string, std::string> kTags = {
    {"nan_or_inf", "NaN/Inf"},
    {"all_zero", "zero"},
    {"constant", "constant"},
    {"duplicates", "duplicate"},
    {"odd_std", "std?"},
    {"odd_dtype", "type?"},
    {"missing_scales", "no scales"},
    {"missing_biases", "no biases"},
    {"parts_do_not_fit", "misfit"},
    {"orphaned_part", "orphan"},
    {"tensor_twice", "twice"},
    {"ambiguous_quantization", "bits?"},
    {"not_in_index", "not in index"},
};

using Tags = std::map<std::string, std::set<std::string>>;  // tensor → tags

Tags CollectTags(const std::vector<Finding>& findings) {
  Tags tags;
  for (const Finding& finding : findings) {
    const auto tag = kTags.find(finding.kind);
    if (tag == kTags.end()) continue;
    for (const std::string& tensor : finding.tensors) tags[tensor].insert(tag->second);
  }
  return tags;
}

TextTable NewTable(std::string first) {
  return TextTable({{std::move(first), false},
                    {"shape", false},
                    {"type", false},
                    {"bytes"},
                    {"mean"},
                    {"std"},
                    {"min"},
                    {"max"},
                    {"zeros"},
                    {"", false}});
}

std::string ShapeText(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::string ZeroText(const inspect::ValueStatistics& s) {
  if (s.zeros == 0) return "";
  if (s.zeros == s.count) return "100%";
  const double share = 100 * s.zero_share();
  return share < 0.1 ? "<0.1%" : fmt::format("{:.1f}%", std::min(share, 99.9));
}

std::string TagText(const std::vector<const inspect::InspectedTensor*>& tensors, const Tags& tags) {
  std::map<std::string, size_t> counts;
  for (const inspect::InspectedTensor* tensor : tensors) {
    const auto found = tags.find(tensor->name);
    if (found == tags.end()) continue;
    for (const std::string& tag : found->second) ++counts[tag];
  }
  std::string text;
  for (const auto& [tag, count] : counts) {
    text += (text.empty() ? "← " : ", ") + tag;
    if (count < tensors.size()) text += fmt::format(" in {} of {}", count, tensors.size());
  }
  return text;
}

// Scales and biases count with what they scale, unless they have rows of their own.
int64_t ShownBytes(const inspect::InspectedTensor& tensor, bool full) {
  return tensor.bytes() + (full ? 0 : tensor.part_bytes);
}

// One row for tensors that differ in block numbers only.
std::vector<std::string> Row(const std::string& label,
                             const std::vector<const inspect::InspectedTensor*>& tensors, const Tags& tags,
                             bool full) {
  int64_t bytes = 0;
  inspect::ValueStatistics all;
  bool measured = true;
  for (const inspect::InspectedTensor* tensor : tensors) {
    bytes += ShownBytes(*tensor, full);
    measured = measured && tensor->statistics;
    if (tensor->statistics) all.Merge(*tensor->statistics);
  }
  std::vector<std::string> row = {label, ShapeText(tensors[0]->shape), tensors[0]->format, HumanBytes(bytes)};
  if (measured && all.finite() > 0) {
    const std::vector<std::string> figures = {ShortNumber(all.mean), ShortNumber(all.std()),
                                              ShortNumber(all.min), ShortNumber(all.max), ZeroText(all)};
    row.insert(row.end(), figures.begin(), figures.end());
  } else {
    row.insert(row.end(), 5, "");
  }
  row.push_back(TagText(tensors, tags));
  return row;
}

struct Totals {
  size_t tensors = 0;
  int64_t parameters = 0, bytes = 0;
};

Totals TotalsOf(const WeightTreeNode& node, bool full) {
  Totals totals;
  for (const inspect::InspectedTensor* tensor : node.tensors) {
    ++totals.tensors;
    totals.parameters += tensor->parameters();
    totals.bytes += ShownBytes(*tensor, full);
  }
  for (const WeightTreeNode& child : node.children) {
    const Totals part = TotalsOf(child, full);
    totals.tensors += part.tensors;
    totals.parameters += part.parameters;
    totals.bytes += part.bytes;
  }
  return totals;
}

// A module with its weight and bias needs no heading of its own.
bool IsSmallModule(const WeightTreeNode& node) {
  return node.children.size() <= 3 && std::all_of(node.children.begin(), node.children.end(),
                                                  [](const WeightTreeNode& n) { return n.leaf(); });
}

class TreePrinter {
 public:
  TreePrinter(const Tags& tags, bool full, const TextStyle& style)
      : tags_(tags), full_(full), style_(style), table_(NewTable("name")) {}

  std::string Print(const std::vector<WeightTreeNode>& nodes) {
    for (const WeightTreeNode& node : nodes) Add(node, 1);
    const std::vector<std::string> lines = table_.Lines();
    std::string text = style_.Dim(lines[0]) + "\n";
    for (size_t i = 1; i < lines.size(); ++i) {
      const auto heading = headings_.find(i - 1);
      const size_t tag = lines[i].find("  ← ");
      if (heading != headings_.end()) {
        text += lines[i] + "  " + style_.Dim(heading->second) + "\n";
      } else if (tag != lines[i].npos) {
        text += lines[i].substr(0, tag) + style_.Yellow(lines[i].substr(tag)) + "\n";
      } else {
        text += lines[i] + "\n";
      }
    }
    return text;
  }

 private:
  void Add(const WeightTreeNode& node, size_t depth, const std::string& prefix = "") {
    const std::string label = prefix + node.label;
    const std::string indented = std::string(2 * depth, ' ') + label;
    if (node.leaf()) {
      table_.AddRow(Row(indented, node.tensors, tags_, full_));
      ++rows_;
    } else if (IsSmallModule(node)) {
      for (const WeightTreeNode& child : node.children) Add(child, depth, label + ".");
    } else {
      const Totals totals = TotalsOf(node, full_);
      headings_[rows_++] = fmt::format("{} tensors, {} parameters, {}", totals.tensors,
                                       HumanCount(totals.parameters), HumanBytes(totals.bytes));
      table_.AddRow({indented});
      for (const WeightTreeNode& child : node.children) Add(child, depth + 1);
    }
  }

  const Tags& tags_;
  bool full_;
  const TextStyle& style_;
  TextTable table_;
  size_t rows_ = 0;
  std::map<size_t, std::string> headings_;  // row → what stands behind its name
};

double SortValue(const inspect::InspectedTensor& tensor, WeightOrder order) {
  if (order == WeightOrder::kBytes) return static_cast<double>(tensor.bytes());
  if (!tensor.statistics) return -1;
  switch (order) {
    case WeightOrder::kStd:
      return tensor.statistics->std();
    case WeightOrder::kMax:
      return tensor.statistics->max_abs();
    case WeightOrder::kZeros:
      return tensor.statistics->zero_share();
    default:
      return 0;
  }
}

std::string FlatList(const inspect::InspectedComponent& component, const Tags& tags,
                     const InspectReportOptions& options) {
  std::vector<const inspect::InspectedTensor*> tensors;
  for (const inspect::InspectedTensor& tensor : component.tensors) {
    if (options.full || tensor.part_of.empty()) tensors.push_back(&tensor);
  }
  if (options.order != WeightOrder::kName) {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [&](const inspect::InspectedTensor* a, const inspect::InspectedTensor* b) {
                       return SortValue(*a, options.order) > SortValue(*b, options.order);
                     });
  }
  const size_t shown = std::min(tensors.size(), options.top.value_or(tensors.size()));
  TextTable table = NewTable("name");
  for (size_t i = 0; i < shown; ++i)
    table.AddRow(Row("  " + Printable(tensors[i]->name), {tensors[i]}, tags, options.full));
  std::string text;
  for (const std::string& line : table.Lines())
    text += (text.empty() ? options.style.Dim(line) : line) + "\n";
  if (shown < tensors.size())
    text += options.style.Dim(fmt::format("  … and {} more", tensors.size() - shown)) + "\n";
  return text;
}

std::string ComponentText(const inspect::InspectedComponent& component, const InspectReportOptions& options) {
  std::map<std::string, int64_t> formats;
  for (const inspect::InspectedTensor& tensor : component.tensors) {
    if (tensor.part_of.empty()) formats[tensor.format] += tensor.parameters();
  }
  std::vector<std::pair<int64_t, std::string>> by_size;
  for (const auto& [format, count] : formats) by_size.emplace_back(count, format);
  std::sort(by_size.rbegin(), by_size.rend());
  std::string types;
  for (const auto& [count, format] : by_size) types += (types.empty() ? "" : ", ") + format;
  const auto tensors = std::count_if(component.tensors.begin(), component.tensors.end(),
                                     [](const inspect::InspectedTensor& t) { return t.part_of.empty(); });
  std::string text =
      fmt::format("{}  {} parameters in {} tensors, {}, {}{}\n",
                  options.style.Bold(Printable(component.name)), HumanCount(component.parameters()), tensors,
                  HumanBytes(component.bytes()), types.empty() ? "nothing" : types,
                  component.files.size() > 1 ? fmt::format(", {} files", component.files.size()) : "");
  if (!options.quiet && !component.tensors.empty()) {
    const Tags tags = CollectTags(component.findings);
    if (options.order == WeightOrder::kName && !options.top) {
      text += TreePrinter(tags, options.full, options.style).Print(BuildWeightTree(component, options.full));
    } else {
      text += FlatList(component, tags, options);
    }
  }
  return text + FindingsText(component.findings, options);
}

std::string SecondReadingText(const inspect::SecondReading& reading, const TextStyle& style) {
  const std::string amount =
      reading.bytes == reading.total_bytes
          ? fmt::format("all {}", HumanBytes(reading.bytes))
          : fmt::format("{} of {}", HumanBytes(reading.bytes), HumanBytes(reading.total_bytes));
  if (reading.differences.empty()) {
    return fmt::format("Read twice: {} gave the same values{}.\n", amount,
                       reading.bytes == reading.total_bytes ? "" : " (--verify reads everything twice)");
  }
  std::string names;
  for (const std::string& name : reading.differences) names += (names.empty() ? "" : ", ") + Printable(name);
  return style.Red("Read twice: the values differ") +
         fmt::format(" in {} tensors, so the disk, the memory or another program that writes is at fault:\n",
                     reading.differences.size()) +
         Wrap(names, "  ", kReportWidth);
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings, const InspectReportOptions& options) {
  std::string text;
  const size_t shown = options.full ? findings.size() : std::min(findings.size(), kMaxFindings);
  for (size_t i = 0; i < shown; ++i) {
    const Finding& finding = findings[i];
    const char* word = finding.severity == Severity::kBroken    ? "broken   "
                       : finding.severity == Severity::kWarning ? "warning  "
                                                                : "note     ";
    std::string lines = Wrap(finding.subject + ": " + finding.text, fmt::format("  {}", word), kReportWidth);
    const std::string coloured = finding.severity == Severity::kBroken    ? options.style.Red(word)
                                 : finding.severity == Severity::kWarning ? options.style.Yellow(word)
                                                                          : options.style.Dim(word);
    text += lines.replace(2, std::string_view(word).size(), coloured);
  }
  if (shown < findings.size())
    text += fmt::format("  … and {} more (--full shows all)\n", findings.size() - shown);
  return text;
}

std::string InspectionText(const inspect::Inspection& inspection, const InspectReportOptions& options) {
  std::string text;
  Totals totals;
  size_t broken = 0, warnings = 0, notes = 0;
  for (const inspect::InspectedComponent& component : inspection.components) {
    text += ComponentText(component, options) + "\n";
    totals.tensors += component.tensors.size();
    totals.parameters += component.parameters();
    totals.bytes += component.bytes();
    for (const Finding& finding : component.findings) {
      ++(finding.severity == Severity::kBroken    ? broken
         : finding.severity == Severity::kWarning ? warnings
                                                  : notes);
    }
  }
  if (inspection.components.size() > 1) {
    text +=
        fmt::format("Total: {} parameters, {}.\n", HumanCount(totals.parameters), HumanBytes(totals.bytes));
  }
  if (inspection.second_reading) text += SecondReadingText(*inspection.second_reading, options.style);
  const std::string counts = fmt::format("{} broken, {} warning{}, {} note{}", broken, warnings,
                                         warnings == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
  return text +
         (inspection.broken() ? options.style.Red("Broken: ") : options.style.Green("Nothing broken: ")) +
         counts + ".\n";
}

}  // namespace qwen_image::cli

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/text.h"
#include "inspect/findings.h"
#include "weights/names.h"

namespace qwen_image::inspect {
namespace {

using Names = std::set<std::string_view>;

// "transformer_blocks" and, for each of its numbers, the names that follow. All are views of tensors' names.
struct Sequence {
  std::map<int64_t, Names> blocks;
};
using Sequences = std::map<std::string_view, Sequence>;

Sequences FindSequences(const InspectedComponent& component) {
  Sequences sequences;
  for (const InspectedTensor& tensor : component.tensors) {
    if (!tensor.part_of.empty()) continue;
    const std::string_view name = tensor.name;
    for (const std::string_view part : SplitName(name)) {
      const auto begin = static_cast<size_t>(part.data() - name.data());
      if (!IsBlockNumber(part) || begin == 0 || begin + part.size() >= name.size()) continue;
      int64_t number = 0;
      std::from_chars(part.data(), part.data() + part.size(), number);
      sequences[name.substr(0, begin - 1)].blocks[number].insert(name.substr(begin + part.size() + 1));
    }
  }
  return sequences;
}

// The names that most blocks have, and how many do.
std::pair<const Names*, size_t> UsualNames(const Sequence& sequence) {
  std::map<Names, size_t> counts;
  for (const auto& [number, names] : sequence.blocks) ++counts[names];
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [number, names] : sequence.blocks) {
    if (names == most->first) return {&names, most->second};
  }
  return {nullptr, 0};
}

// Numbered layers of a torch Sequential have gaps by nature (activations have no weights); blocks hold
// modules of their own and have none.
bool HoldsModules(const Names& names) {
  return std::any_of(names.begin(), names.end(),
                     [](std::string_view name) { return name.find('.') != name.npos; });
}

std::string GapText(const std::vector<std::pair<int64_t, int64_t>>& gaps) {
  std::string text;
  for (const auto& [first, last] : gaps) {
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}…{}", first, last);
  }
  return text;
}

std::optional<int64_t> CountIn(const Json& config, const BlockCount& rule) {
  const Json* section = &config;
  if (!rule.section.empty() && config.is_object()) {
    const auto found = config.find(rule.section);
    if (found == config.end()) return std::nullopt;
    section = &*found;
  }
  if (!section->is_object()) return std::nullopt;
  const auto count = section->find(rule.key);
  const bool told = count != section->end() && count->is_number_unsigned() && *count < 1000000;
  return told ? std::optional(count->get<int64_t>()) : std::nullopt;
}

// How many blocks config.json promises for a sequence, or nothing.
std::optional<int64_t> PromisedBlocks(const Json& config, std::string_view sequence) {
  for (const Vocabulary* family : Vocabularies()) {
    for (const BlockCount& rule : family->weights->block_counts) {
      if (!sequence.ends_with(rule.list)) continue;
      if (const auto count = CountIn(config, rule)) return count;
    }
  }
  return std::nullopt;
}

void FindMissingBlocks(const Json& config, bool lora, const std::string& name, const Sequence& sequence,
                       FindingCollector& findings) {
  std::vector<std::pair<int64_t, int64_t>> gaps;
  int64_t next = 0;
  for (const auto& [number, names] : sequence.blocks) {
    if (number > next) gaps.emplace_back(next, number - 1);
    next = number + 1;
  }
  const auto promised = PromisedBlocks(config, name);
  if (promised && next < *promised) gaps.emplace_back(next, *promised - 1);
  if (!gaps.empty()) {
    findings.Add(
        Finding{lora ? Severity::kNote : Severity::kBroken, "missing_blocks",
                Printable(fmt::format("{}.{{{}}}", name, GapText(gaps))),
                lora ? "no weights for these blocks: this LoRA leaves them as they are"
                     : fmt::format("missing; {} blocks are there{}. The file or download is incomplete",
                                   sequence.blocks.size(),
                                   promised ? fmt::format(", config.json says {}", *promised) : "")});
  }
  if (promised && next > *promised && !lora) {
    findings.Add(Finding{Severity::kWarning, "extra_blocks",
                         Printable(fmt::format("{}.{{{}}}", name, GapText({{*promised, next - 1}}))),
                         fmt::format("more blocks than the {} that config.json says", *promised)});
  }
}

// A tensor that one block lacks and the others have.
void FindMissingTensors(const std::string& name, const Sequence& sequence, const Names& usual,
                        size_t usual_count, FindingCollector& findings) {
  constexpr size_t kMinBlocks = 4;
  const bool uniform = sequence.blocks.size() >= kMinBlocks && 10 * usual_count >= 7 * sequence.blocks.size();
  if (!uniform) return;
  for (const auto& [number, names] : sequence.blocks) {
    std::vector<std::string> absent;
    for (const std::string_view tensor : usual) {
      if (!names.contains(tensor)) absent.push_back(fmt::format("{}.{}.{}", name, number, tensor));
    }
    for (const std::string& tensor : absent) {
      findings.Add(
          Severity::kBroken, "missing_tensor", tensor,
          fmt::format("missing, though {} of {} blocks have it", usual_count, sequence.blocks.size()));
    }
  }
}

void FindOddTypes(const InspectedComponent& component, FindingCollector& findings) {
  constexpr size_t kMinTensors = 4;
  std::map<std::string, std::vector<const InspectedTensor*>> roles;
  for (const InspectedTensor& tensor : component.tensors) {
    if (tensor.part_of.empty()) roles[RoleOf(tensor.name)].push_back(&tensor);
  }
  for (const auto& [role, tensors] : roles) {
    if (tensors.size() < kMinTensors) continue;
    std::map<std::string, size_t> counts;
    for (const InspectedTensor* tensor : tensors) ++counts[tensor->format];
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const InspectedTensor* tensor : tensors) {
      if (tensor->format == most->first || 4 * counts[tensor->format] > tensors.size()) continue;
      findings.Add(Severity::kWarning, "odd_dtype", tensor->name,
                   fmt::format("{}, while {} of {} tensors of this role are {}: a mixed recipe, or a slip",
                               tensor->format, most->second, tensors.size(), most->first));
    }
  }
}

}  // namespace

void FindStructuralTrouble(const InspectedComponent& component, FindingCollector& findings) {
  FindOddTypes(component, findings);
  if (component.is_shard) {
    findings.Add(Finding{Severity::kNote, "one_shard", Printable(component.path.filename().string()),
                         "one shard of several: it does not show whether blocks are missing"});
    return;
  }
  const bool lora = component.is_lora();  // one leaves out what it does not change
  const Sequences sequences = FindSequences(component);
  for (const auto& [prefix, sequence] : sequences) {
    const auto [usual, count] = UsualNames(sequence);
    const bool promised = PromisedBlocks(component.config, prefix).has_value();
    if (!HoldsModules(*usual) || (count < 2 && !promised)) continue;
    const std::string name(prefix);
    FindMissingBlocks(component.config, lora, name, sequence, findings);
    if (!lora) FindMissingTensors(name, sequence, *usual, count, findings);
  }
}

}  // namespace qwen_image::inspect

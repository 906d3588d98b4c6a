#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/glob.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/text.h"
#include "inspect/findings.h"
#include "weights/names.h"

namespace qwen_image::inspect {
namespace {

bool Contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

// Integers, masks and single numbers are constants by right; scales and biases are judged by what they scale.
bool HoldsWeights(const InspectedTensor& tensor) {
  const bool numbers = IsFloatingPoint(tensor.stored->dtype) || tensor.weight->quantized();
  return numbers && tensor.part_of.empty() && tensor.statistics && tensor.statistics->count > 1;
}

bool IsNorm(const std::string& name) {
  return Contains(name, "norm") || Contains(name, ".ln_") || name.ends_with(".gamma");
}

// Why a family's tensor may be all zero; null if no reason is known.
const ZerosReason* KnownReason(const std::string& name) {
  for (const Vocabulary* family : Vocabularies()) {
    for (const ZerosReason& reason : family->weights->reasons_for_zeros) {
      if (MatchesGlob(reason.glob, name)) return &reason;
    }
  }
  return nullptr;
}

void FindZeros(const InspectedTensor& tensor, FindingCollector& findings) {
  const std::string& name = tensor.name;
  if (const ZerosReason* known = KnownReason(name)) {
    findings.Add(Severity::kNote, "all_zero", name, std::string(known->text));
  } else if (Contains(name, "lora_B") || Contains(name, "lora_up") || Contains(name, "lora.up")) {
    findings.Add(Severity::kWarning, "all_zero", name,
                 "all zero, as before training: this LoRA changes nothing here");
  } else if (name.ends_with("bias")) {
    findings.Add(Severity::kWarning, "all_zero", name,
                 "all zero: never trained, or lost on the way (a loader that skips what it does not know)");
  } else {
    findings.Add(Severity::kWarning, "all_zero", name,
                 "all zero: this layer gives nothing but its bias. Never trained, or lost on the way");
  }
}

void FindConstant(const InspectedTensor& tensor, FindingCollector& findings) {
  const double value = tensor.statistics->min;
  if (IsNorm(tensor.name)) {
    findings.Add(
        Severity::kNote, "constant", tensor.name,
        value == 1
            ? "all ones, the initial value of a norm: not trained"
            : fmt::format("every element is {:.4g}: not trained, nothing but weight decay moved it", value));
  } else {
    findings.Add(Severity::kWarning, "constant", tensor.name,
                 fmt::format("every element is {:.4g}: never trained, or a placeholder", value));
  }
}

struct Duplicates {
  std::vector<std::string> tensors;
  size_t groups = 0;
};

// Whether a family ties such tensors.
bool AreTied(const std::vector<std::string>& names) {
  const auto any = [&](std::string_view glob) {
    return std::any_of(names.begin(), names.end(), [&](const auto& name) { return MatchesGlob(glob, name); });
  };
  return std::any_of(Vocabularies().begin(), Vocabularies().end(), [&](const Vocabulary* family) {
    const auto& tied = family->weights->tied;
    return std::any_of(tied.begin(), tied.end(),
                       [&](const TiedTensors& pair) { return any(pair.one) && any(pair.other); });
  });
}

Severity DuplicateSeverity(const std::vector<std::string>& names, std::string* text) {
  const auto parent = [](const std::string& name, int levels) {
    size_t end = name.size();
    for (int i = 0; i < levels && end != name.npos && end > 0; ++i) end = name.rfind('.', end - 1);
    return end == name.npos ? std::string() : name.substr(0, end);
  };
  if (AreTied(names)) {
    *text = "the same bytes: tied on purpose";
    return Severity::kNote;
  }
  const bool added_biases = std::all_of(names.begin(), names.end(), [&](const auto& n) {
    return n.ends_with(".bias") && parent(n, 2) == parent(names[0], 2);
  });
  if (added_biases) {
    *text = "the same bytes: biases whose outputs are added learn the same from the same start";
    return Severity::kNote;
  }
  *text = "the same bytes under several names: one was copied over the other, or they are tied on purpose";
  return Severity::kWarning;
}

// Equal content under different names. Constants are left out: all ones are equal for a reason.
void FindDuplicates(const InspectedComponent& component, FindingCollector& findings) {
  constexpr int64_t kMinElements = 8;  // fewer may agree by chance
  std::map<std::pair<Checksum, int64_t>, std::vector<std::string>> by_content;
  for (const InspectedTensor& tensor : component.tensors) {
    if (!HoldsWeights(tensor) || tensor.statistics->constant() || ElementCount(tensor.shape) < kMinElements)
      continue;
    by_content[{tensor.checksum, tensor.bytes()}].push_back(tensor.name);
  }
  // Whole blocks that are equal make one finding: "transformer_blocks.{3,7}", not one for each of their
  // tensors.
  std::map<std::string, Duplicates> blocks;
  for (const auto& [content, names] : by_content) {
    if (names.size() < 2) continue;
    const bool one_role = std::all_of(names.begin(), names.end(), [&first = names[0]](const auto& name) {
      return RoleOf(name) == RoleOf(first);
    });
    const std::string folded = FoldedName(names);
    const size_t brace = folded.rfind('}');
    if (one_role && brace != folded.npos) {
      Duplicates& block = blocks[folded.substr(0, brace + 1)];
      block.tensors.insert(block.tensors.end(), names.begin(), names.end());
      ++block.groups;
      continue;
    }
    Finding finding{.kind = "duplicates", .tensors = names};
    finding.severity = DuplicateSeverity(names, &finding.text);
    for (const std::string& name : names)
      finding.subject += (finding.subject.empty() ? "" : " = ") + Printable(name);
    findings.Add(std::move(finding));
  }
  for (auto& [blocks_name, duplicates] : blocks) {
    findings.Add(
        Finding{Severity::kWarning, "duplicates", Printable(blocks_name),
                fmt::format("{} {} the same bytes in these blocks: one was copied over the other",
                            duplicates.groups, duplicates.groups == 1 ? "tensor has" : "tensors have"),
                std::move(duplicates.tensors)});
  }
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A spread out of line with the same tensor in other blocks. Both limits must be passed: three times the
// median (or a third of it), which trained models rarely show, and six robust standard deviations, which a
// role whose spread varies by nature does not reach.
void FindOddSpreads(const InspectedComponent& component, FindingCollector& findings) {
  constexpr size_t kMinPeers = 4;
  constexpr int64_t kMinElements = 32;  // the spread of fewer is mostly chance
  const double kFactor = std::log(3.0);
  constexpr double kDeviations = 6, kMadToSigma = 1.4826;
  std::map<std::pair<std::string, Shape>, std::vector<const InspectedTensor*>> roles;
  for (const InspectedTensor& tensor : component.tensors) {
    if (!HoldsWeights(tensor) || ElementCount(tensor.shape) < kMinElements || !(tensor.statistics->std() > 0))
      continue;
    roles[{RoleOf(tensor.name), tensor.shape}].push_back(&tensor);
  }
  for (const auto& [role, tensors] : roles) {
    if (tensors.size() < kMinPeers + 1) continue;
    std::vector<double> logs, distances;
    for (const InspectedTensor* tensor : tensors) logs.push_back(std::log(tensor->statistics->std()));
    const double median = Median(logs);
    for (const double value : logs) distances.push_back(std::abs(value - median));
    const double limit = std::max(kFactor, kDeviations * kMadToSigma * Median(distances));
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (distances[i] <= limit) continue;
      findings.Add(
          Severity::kWarning, "odd_std", tensors[i]->name,
          fmt::format("std {:.3g}, but {:.3g} is usual for this tensor in the other {} blocks ({:.1f} × {})",
                      std::exp(logs[i]), std::exp(median), tensors.size() - 1, std::exp(distances[i]),
                      logs[i] > median ? "more" : "less"));
    }
  }
}

}  // namespace

void FindUnusualValues(const InspectedComponent& component, FindingCollector& findings) {
  for (const InspectedTensor& tensor : component.tensors) {
    if (!tensor.statistics) continue;
    if (tensor.statistics->nan + tensor.statistics->inf > 0) {
      findings.Add(Severity::kBroken, "nan_or_inf", tensor.name,
                   "holds NaN or infinite values, which spread to every result");
    }
    if (!HoldsWeights(tensor) || !tensor.statistics->constant()) continue;
    if (tensor.statistics->min == 0) {
      FindZeros(tensor, findings);
    } else {
      FindConstant(tensor, findings);
    }
  }
  FindDuplicates(component, findings);
  FindOddSpreads(component, findings);
}

}  // namespace qwen_image::inspect

#include "inspect/weights.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"
#include "inspect/findings.h"
#include "inspect/tensors.h"

namespace qwen_image::inspect {
namespace {

bool MatchesAny(const std::vector<std::string>& filters, const std::string& name) {
  return std::any_of(filters.begin(), filters.end(),
                     [&](const std::string& filter) { return MatchesGlob(filter, name); });
}

// Scales and biases come and go with what they scale.
void ApplyFilters(const std::vector<std::string>& filters, InspectedComponent& component) {
  std::erase_if(component.tensors, [&](const InspectedTensor& tensor) {
    return !MatchesAny(filters, tensor.part_of.empty() ? tensor.name : tensor.part_of);
  });
  std::erase_if(component.findings, [&](const Finding& finding) {
    return !finding.tensors.empty() &&
           std::none_of(finding.tensors.begin(), finding.tensors.end(),
                        [&](const auto& name) { return MatchesAny(filters, name); });
  });
}

}  // namespace

std::vector<InspectedComponent> OpenForInspection(const std::filesystem::path& path,
                                                  const std::vector<std::string>& filters) {
  std::vector<InspectedComponent> components;
  bool any = false;
  for (WeightSet& set : OpenAllSets(path)) {
    InspectedComponent& component = components.emplace_back(InspectedComponent{std::move(set)});
    ListTensors(component);
    FindingCollector findings;
    FindStructuralTrouble(component, findings);
    findings.MoveTo(component.findings);
    // After the look at the whole: a filter must not make blocks seem to be missing.
    if (!filters.empty()) ApplyFilters(filters, component);
    any |= !component.tensors.empty();
  }
  if (any) return components;
  if (filters.empty()) Fail(ErrorKind::kBadInput, "{} holds no tensors", path.string());
  Fail(ErrorKind::kBadInput, "no tensor in {} matches {}", path.string(), Quoted(filters[0]));
}

Inspection InspectWeights(const std::filesystem::path& path, const InspectOptions& options,
                          const ScanContext& context) {
  Inspection inspection{.path = path, .components = OpenForInspection(path, options.filters)};
  if (!options.statistics) return inspection;
  ScanTensors(inspection.components, context);
  for (InspectedComponent& component : inspection.components) {
    FindingCollector findings;
    FindUnusualValues(component, findings);
    findings.MoveTo(component.findings);
  }
  if (options.read_again_bytes > 0) {
    inspection.second_reading = ReadAgain(inspection.components, options.read_again_bytes, context);
  }
  return inspection;
}

}  // namespace qwen_image::inspect

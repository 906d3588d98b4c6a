#include "inspect/finding_collector.h"

#include <algorithm>

#include "files/text.h"
#include "weights/names.h"

namespace qwen_image::inspect {
namespace {

// "blocks.{0…59}.attn.to_q.bias, blocks.{0…59}.attn.to_k.bias and 3 more": one for each role.
std::string Subject(const std::vector<std::string>& tensors) {
  constexpr size_t kMaxRoles = 8;
  std::map<std::string, std::vector<std::string>> roles;
  for (const std::string& tensor : tensors) roles[RoleOf(tensor)].push_back(tensor);
  std::string text;
  size_t shown = 0;
  for (const auto& [role, members] : roles) {
    if (shown == kMaxRoles) return text + " and " + std::to_string(roles.size() - shown) + " more";
    if (shown++ > 0) text += ", ";
    text += Printable(FoldedName(members));
  }
  return text;
}

}  // namespace

void FindingCollector::Add(Severity severity, const std::string& kind, const std::string& tensor,
                           const std::string& text) {
  const auto [at, added] = index_.try_emplace({kind, text}, findings_.size());
  if (added) findings_.push_back({severity, kind, "", text, {}});
  findings_[at->second].tensors.push_back(tensor);
}

void FindingCollector::Add(Finding finding) { findings_.push_back(std::move(finding)); }

void FindingCollector::MoveTo(std::vector<Finding>& findings) {
  for (Finding& finding : findings_) {
    if (finding.subject.empty()) finding.subject = Subject(finding.tensors);
    findings.push_back(std::move(finding));
  }
  findings_.clear();
  index_.clear();
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

}  // namespace qwen_image::inspect

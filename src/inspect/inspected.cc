#include "inspect/inspected.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace qwen_image::inspect {

const InspectedTensor* InspectedComponent::Find(std::string_view tensor) const {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), tensor,
                       [](const InspectedTensor& t, std::string_view name) { return t.name < name; });
  return at != tensors.end() && at->name == tensor ? &*at : nullptr;
}

InspectedTensor* InspectedComponent::Find(std::string_view tensor) {
  return const_cast<InspectedTensor*>(std::as_const(*this).Find(tensor));
}

int64_t InspectedComponent::parameters() const {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const InspectedTensor& t) { return sum + t.parameters(); });
}

int64_t InspectedComponent::bytes() const {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const InspectedTensor& t) { return sum + t.bytes(); });
}

bool InspectedComponent::is_lora() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const InspectedTensor& t) {
    return t.name.find("lora_") != t.name.npos || t.name.find(".lora.") != t.name.npos;
  });
}

bool Inspection::broken() const {
  const auto is_broken = [](const Finding& f) { return f.severity == Severity::kBroken; };
  return (second_reading && !second_reading->differences.empty()) ||
         std::any_of(components.begin(), components.end(), [&](const InspectedComponent& c) {
           return std::any_of(c.findings.begin(), c.findings.end(), is_broken);
         });
}

}  // namespace qwen_image::inspect

#include "parity/compare/result.h"

#include <algorithm>

namespace qwen_image::compare {

const TensorComparison* Comparison::first_divergence() const {
  if (order == Order::kUnknown && failed() > 1) return nullptr;
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const TensorComparison& t) { return !t.passed; });
  return found == tensors.end() ? nullptr : &*found;
}

int64_t Comparison::failed() const {
  return std::count_if(tensors.begin(), tensors.end(), [](const TensorComparison& t) { return !t.passed; });
}

bool Comparison::passed() const {
  const bool pictures_passed = std::all_of(pictures.begin(), pictures.end(),
                                           [](const ImageComparison& p) { return p.passed.value_or(true); });
  const bool pictures_judged = std::any_of(pictures.begin(), pictures.end(),
                                           [](const ImageComparison& p) { return p.passed.has_value(); });
  return (!tensors.empty() || pictures_judged) && failed() == 0 && missing.empty() && extra.empty() &&
         pictures_passed;
}

std::string_view NameOf(Order order) {
  switch (order) {
    case Order::kReference:
      return "reference";
    case Order::kRun:
      return "run";
    case Order::kNames:
      return "names";
    case Order::kUnknown:
      return "unknown";
  }
  return "?";
}

}  // namespace qwen_image::compare

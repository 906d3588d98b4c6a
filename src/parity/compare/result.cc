#include "parity/compare/result.h"

#include <algorithm>

namespace qwen_image::compare {

const TensorComparison* Comparison::first_divergence() const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const TensorComparison& t) { return !t.passed; });
  return found == tensors.end() ? nullptr : &*found;
}

bool Comparison::passed() const {
  const bool pictures_passed = std::all_of(pictures.begin(), pictures.end(),
                                           [](const ImageComparison& p) { return p.passed.value_or(true); });
  const bool pictures_judged = std::any_of(pictures.begin(), pictures.end(),
                                           [](const ImageComparison& p) { return p.passed.has_value(); });
  return (!tensors.empty() || pictures_judged) && !first_divergence() && missing.empty() && extra.empty() &&
         pictures_passed;
}

}  // namespace qwen_image::compare

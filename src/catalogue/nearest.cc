#include "catalogue/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace qwen_image::catalogue {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (Lower(a[i]) != Lower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> Nearest(std::string_view text, const std::vector<std::string>& candidates,
                                 size_t at_most) {
  constexpr size_t kMaxLength = 300;  // the work grows with the product of the lengths
  std::vector<std::pair<size_t, const std::string*>> scored;
  for (const std::string& candidate : candidates)
    scored.emplace_back(
        Distance(text.substr(0, kMaxLength), std::string_view(candidate).substr(0, kMaxLength)), &candidate);
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(at_most, scored.size()); ++i) nearest.push_back(*scored[i].second);
  return nearest;
}

}  // namespace qwen_image::catalogue

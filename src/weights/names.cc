#include "weights/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace qwen_image {

std::vector<std::string_view> SplitName(std::string_view name) {
  constexpr size_t kMaxParts = 32;
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < kMaxParts) {
    const size_t dot = name.find('.');
    if (dot == name.npos) break;
    parts.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  parts.push_back(name);
  return parts;
}

bool IsBlockNumber(std::string_view part) {
  return !part.empty() && part.size() <= 6 &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string RoleOf(std::string_view name) {
  std::string role;
  for (const std::string_view part : SplitName(name)) {
    if (!role.empty()) role += '.';
    role += IsBlockNumber(part) ? "{}" : part;
  }
  return role;
}

std::string FlatName(std::string_view name) {
  std::string flat(name);
  std::replace(flat.begin(), flat.end(), '.', '_');
  return flat;
}

std::string RangeText(const std::vector<int64_t>& sorted) {
  std::string text;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", sorted[begin]);
    if (end - begin == 2) text += fmt::format(",{}", sorted[end - 1]);
    if (end - begin > 2) text += fmt::format("…{}", sorted[end - 1]);
    begin = end;
  }
  return text;
}

std::string FoldedName(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const std::vector<std::string_view> model = SplitName(names[0]);
  std::vector<std::set<int64_t>> numbers(model.size());
  for (const std::string& name : names) {
    const std::vector<std::string_view> parts = SplitName(name);
    for (size_t i = 0; i < std::min(parts.size(), model.size()); ++i) {
      if (!IsBlockNumber(parts[i])) continue;
      int64_t number = 0;
      std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), number);
      numbers[i].insert(number);
    }
  }
  std::string folded;
  for (size_t i = 0; i < model.size(); ++i) {
    if (i) folded += '.';
    if (numbers[i].size() > 1) {
      folded += fmt::format("{{{}}}", RangeText({numbers[i].begin(), numbers[i].end()}));
    } else {
      folded += model[i];
    }
  }
  return folded;
}

std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& candidates,
                                      size_t at_most) {
  // Renamed tensors keep most of their parts: those in common from the end count, then those from the start.
  const std::vector<std::string_view> parts = SplitName(name);
  std::vector<std::pair<size_t, const std::string*>> scored;
  for (const std::string& candidate : candidates) {
    const std::vector<std::string_view> other = SplitName(candidate);
    const size_t most = std::min(parts.size(), other.size());
    size_t tail = 0, head = 0;
    while (tail < most && parts[parts.size() - 1 - tail] == other[other.size() - 1 - tail]) ++tail;
    while (head < most - tail && parts[head] == other[head]) ++head;
    // Half of the longer name must agree; "weight" alone is no likeness.
    if (2 * (tail + head) >= std::max(parts.size(), other.size()) && tail + head >= 2) {
      scored.emplace_back(2 * tail + head, &candidate);
    }
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(at_most, scored.size()); ++i) nearest.push_back(*scored[i].second);
  return nearest;
}

}  // namespace qwen_image

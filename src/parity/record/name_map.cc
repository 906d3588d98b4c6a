#include "parity/record/name_map.h"

#include <algorithm>
#include <optional>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"

namespace qwen_image::record {
namespace {

size_t StarsIn(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '*'));
}

// The text that each '*' of `pattern` matches in `text`, in order. Earlier stars match as little as possible.
std::vector<std::string_view> StarsOf(std::string_view pattern, std::string_view text) {
  std::vector<std::string_view> stars;
  while (!pattern.empty()) {
    if (pattern.front() != '*') {
      pattern.remove_prefix(1);
      text.remove_prefix(1);
      continue;
    }
    pattern.remove_prefix(1);
    size_t length = 0;
    while (!MatchesGlob(pattern, text.substr(length))) ++length;
    stars.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return stars;
}

std::string Fill(std::string_view value, const std::vector<std::string_view>& stars) {
  std::string name;
  size_t next = 0;
  for (const char c : value) {
    if (c == '*') {
      name += stars[next++];
    } else {
      name += c;
    }
  }
  return name;
}

}  // namespace

NameMap::NameMap(const Json& map, const std::string& where) : where_(where) {
  if (!map.is_object()) Fail(ErrorKind::kBadInput, "{}: a JSON object of names is expected", where);
  for (const auto& [key, value] : map.items()) {
    if (!value.is_string()) {
      Fail(ErrorKind::kBadInput, "{}: {} maps to {}; a name is expected{}", where, Quoted(key),
           value.type_name(),
           value.is_object() ? " (other layouts are brought in order by tools/reference/import_run.py)" : "");
    }
    const auto& name = value.get_ref<const std::string&>();
    if (StarsIn(key) != StarsIn(name)) {
      Fail(ErrorKind::kBadInput, "{}: {} has {} '*' and {} has {}; both need equally many", where,
           Quoted(key), StarsIn(key), Quoted(name), StarsIn(name));
    }
    if (StarsIn(key) == 0) {
      exact_[key] = name;
    } else {
      patterns_.push_back({key, name, key.size() - StarsIn(key)});
    }
  }
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.letters > b.letters; });
}

NameMap NameMap::Read(const std::filesystem::path& path) {
  return NameMap(ReadJsonFile(path), path.string());
}

std::string NameMap::operator()(const std::string& name) const {
  if (const auto found = exact_.find(name); found != exact_.end()) return found->second;
  const Pattern* best = nullptr;
  std::string result = name;
  for (const Pattern& pattern : patterns_) {
    if (best && pattern.letters < best->letters) break;
    if (!MatchesGlob(pattern.key, name)) continue;
    const std::string filled = Fill(pattern.value, StarsOf(pattern.key, name));
    if (best && filled != result) {
      Fail(ErrorKind::kBadInput, "{}: {} fits both {} and {}", where_, Quoted(name), Quoted(best->key),
           Quoted(pattern.key));
    }
    best = &pattern;
    result = filled;
  }
  return result;
}

}  // namespace qwen_image::record

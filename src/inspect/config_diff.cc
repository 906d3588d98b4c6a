#include "inspect/config_diff.h"

#include <map>
#include <set>

#include "core/fail.h"
#include "files/folder.h"
#include "files/json.h"
#include "files/text.h"
#include "weights/files.h"

namespace qwen_image::inspect {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, fs::path>;  // by their names in the model

void AddConfigs(const fs::path& folder, const std::string& prefix, Files& files) {
  for (const std::string& name : ListFolder(folder)) {
    const bool config =
        name.ends_with("config.json") || name == "model_index.json" || name == "qwen_image.json";
    if (config && !name.starts_with('.') && !IsFolder(folder / name))
      files.emplace(prefix + name, folder / name);
  }
}

Files ConfigsIn(const fs::path& root) {
  Files files;
  AddConfigs(root, "", files);
  for (const std::string& name : ListFolder(root)) {
    if (!name.starts_with('.') && IsFolder(root / name)) AddConfigs(root / name, name + "/", files);
  }
  return files;
}

std::string KeysThatDiffer(const Json& a, const Json& b) {
  if (!a.is_object() || !b.is_object()) return "another kind of value";
  std::set<std::string> keys;
  for (const auto& [key, value] : a.items()) {
    if (!b.contains(key) || b[key] != value) keys.insert(Printable(key, 80));
  }
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) keys.insert(Printable(key, 80));
  }
  return JoinNames({keys.begin(), keys.end()});
}

// Empty if both say the same.
std::string Compare(const fs::path& a, const fs::path& b) {
  try {
    const Json json_a = ReadJsonFile(a), json_b = ReadJsonFile(b);
    return json_a == json_b ? "" : KeysThatDiffer(json_a, json_b);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    return error.message();
  }
}

}  // namespace

std::vector<ConfigDifference> DiffConfigs(const fs::path& a, const fs::path& b) {
  if (!IsFolder(a) || !IsFolder(b)) return {};
  const Files files_a = ConfigsIn(a), files_b = ConfigsIn(b);
  Files all = files_a;
  all.insert(files_b.begin(), files_b.end());
  std::vector<ConfigDifference> differences;
  for (const auto& [name, path] : all) {
    const auto in_a = files_a.find(name), in_b = files_b.find(name);
    const std::string text = in_a == files_a.end()   ? "only in B"
                             : in_b == files_b.end() ? "only in A"
                                                     : Compare(in_a->second, in_b->second);
    if (!text.empty()) differences.push_back({Printable(name), text});
  }
  return differences;
}

}  // namespace qwen_image::inspect

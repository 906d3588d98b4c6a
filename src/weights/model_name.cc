#include "weights/model_name.h"

#include <filesystem>
#include <system_error>

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// Empty if the folder is none of a downloaded model.
std::string RepoOfSnapshot(const fs::path& folder) {
  constexpr std::string_view kPrefix = "models--", kBetween = "--";
  const fs::path snapshots = folder.parent_path();
  const std::string name = snapshots.parent_path().filename().string();
  if (snapshots.filename() != "snapshots" || !name.starts_with(kPrefix)) return "";
  const std::string rest = name.substr(kPrefix.size());
  const size_t between = rest.find(kBetween);
  if (between == 0 || between == rest.npos || between + kBetween.size() == rest.size()) return "";
  return rest.substr(0, between) + "/" + rest.substr(between + kBetween.size());
}

}  // namespace

std::string ModelName(const ModelFiles& files) {
  std::error_code error;
  const fs::path full =
      fs::absolute(files.model.empty() ? files.transformer : files.model, error).lexically_normal();
  const fs::path folder = full.has_filename() ? full : full.parent_path();  // also for "models/tiny/"
  const std::string repo = RepoOfSnapshot(folder);
  return repo.empty() ? folder.filename().string() : repo;
}

}  // namespace qwen_image

#include "hub/pull_selection.h"

#include <algorithm>
#include <map>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool IsBelow(const std::string& path, std::string folder) {
  while (folder.ends_with('/')) folder.pop_back();
  return path.starts_with(folder + "/");
}

bool IsWeights(const std::string& path) { return path.ends_with(".safetensors") || path.ends_with(".gguf"); }

// Not: .bin, .pt and .onnx of other programs, pictures, texts.
bool IsRead(const std::string& path) {
  return IsWeights(path) || path.ends_with(".json") || NameOf(path) == "merges.txt";
}

// "model-00001-of-00004.safetensors", and "0.safetensors" as MLX names its shards.
bool IsShard(const std::string& path) {
  const std::string name = NameOf(path);
  const std::string stem = name.substr(0, name.rfind('.'));
  return stem.find("-of-") != stem.npos || stem.find_first_not_of("0123456789") == stem.npos;
}

// Whole weight files side by side, with no index that makes them parts of one, are alternatives.
void RefuseAlternatives(const std::vector<RemoteFile>& files, const std::string& repo) {
  constexpr size_t kShown = 6;
  std::map<std::string, std::vector<const RemoteFile*>> folders;
  for (const RemoteFile& file : files) {
    if (IsWeights(file.path) && !IsShard(file.path)) folders[FolderOf(file.path)].push_back(&file);
  }
  for (const RemoteFile& file : files) {
    if (file.path.ends_with(".safetensors.index.json")) folders.erase(FolderOf(file.path));
  }
  for (const auto& [folder, weights] : folders) {
    if (weights.size() < 2) continue;
    std::string names;
    for (size_t i = 0; i < std::min(weights.size(), kShown); ++i) {
      names += fmt::format("{}{} ({:.1f} GB)", i > 0 ? ", " : "", Printable(weights[i]->path, 120),
                           static_cast<double>(weights[i]->size) / 1e9);
    }
    if (weights.size() > kShown) names += fmt::format(" and {} more", weights.size() - kShown);
    Fail(ErrorKind::kUsage,
         "{} offers {} files to choose from: {}. Choose with --include, for example --include '{}', or take "
         "all with --include '*'",
         repo, weights.size(), names, Printable(weights.front()->path, 120));
  }
}

}  // namespace

std::vector<RemoteFile> SelectFiles(const std::vector<RemoteFile>& files, const PullFilter& filter,
                                    const std::string& repo) {
  const auto nothing_matches = [&](const auto& matches) {
    return std::none_of(files.begin(), files.end(),
                        [&](const RemoteFile& file) { return matches(file.path); });
  };
  for (const std::string& folder : filter.only) {
    if (nothing_matches([&](const std::string& path) { return IsBelow(path, folder); }))
      Fail(ErrorKind::kUsage, "{} has no folder {}", repo, Quoted(folder));
  }
  for (const std::string& pattern : filter.include) {
    if (nothing_matches([&](const std::string& path) { return MatchesGlob(pattern, path); }))
      Fail(ErrorKind::kUsage, "{} has no file that matches {}", repo, Quoted(pattern));
  }
  std::vector<RemoteFile> chosen;
  for (const RemoteFile& file : files) {
    const std::string& path = file.path;
    const bool in_folder = filter.only.empty() ||
                           // The few small files beside the folders say what kind of model it is a part of.
                           (filter.include.empty() && FolderOf(path).empty() && path.ends_with(".json")) ||
                           std::any_of(filter.only.begin(), filter.only.end(),
                                       [&](const std::string& folder) { return IsBelow(path, folder); });
    const bool wanted = filter.include.empty()
                            ? IsRead(path)
                            : std::any_of(filter.include.begin(), filter.include.end(),
                                          [&](const std::string& p) { return MatchesGlob(p, path); });
    if (in_folder && wanted) chosen.push_back(file);
  }
  if (chosen.empty()) Fail(ErrorKind::kUsage, "{} has no file of a kind that this program reads", repo);
  if (filter.include.empty()) RefuseAlternatives(chosen, repo);
  return chosen;
}

}  // namespace qwen_image::hub

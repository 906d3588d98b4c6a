// Deletes files of a downloaded repository from the cache. The cache is written by many programs, and what
// lies there may be hostile: no link is followed, so nothing outside of the repository's folder is deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_id.h"

namespace qwen_image::hub {

struct RemovedFiles {
  uint64_t bytes = 0;              // freed
  std::vector<std::string> paths;  // whose names are gone
};

// Deletes `paths` (IsPlainPath) from every snapshot, their contents if no other name has the same, and, once
// no file of the repository is left, what an interrupted download and its revisions left behind. Throws Error
// kBadInput, with nothing deleted, if the repository's folder or its "snapshots" is a link.
RemovedFiles RemoveFiles(const std::filesystem::path& cache, const RepoId& repo,
                         const std::vector<std::string>& paths);

}  // namespace qwen_image::hub

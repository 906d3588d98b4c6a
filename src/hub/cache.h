// The folder in which huggingface_hub keeps what it downloads, shared with it:
//
//   models--owner--name/blobs/<hash>                      the contents of files
//   models--owner--name/snapshots/<commit>/<path>         links to blobs, relative
//   models--owner--name/refs/<revision>                   holds a commit
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/repo_id.h"

namespace qwen_image::hub {

std::filesystem::path RepoFolder(const std::filesystem::path& cache, const RepoId& repo);

// The folder of a model that was downloaded: what refs/<revision> points to, or the only snapshot if no
// revision was asked for. Throws Error kBadInput if it is not there, or not all of it is.
std::filesystem::path FindSnapshot(const std::filesystem::path& cache, const RepoId& repo);

// The same folder, whether or not all of it is there; nothing if there is no snapshot that `repo` can mean.
std::optional<std::filesystem::path> SnapshotFolder(const std::filesystem::path& cache, const RepoId& repo);

// The steps that put a file into the cache; all throw Error kCannotWrite.
void LinkBlob(const std::filesystem::path& repo_folder, const std::string& commit, const std::string& path,
              const std::string& hash);
void WriteRef(const std::filesystem::path& repo_folder, const std::string& revision,
              const std::string& commit);
void MakeFolders(const std::filesystem::path& folder);

}  // namespace qwen_image::hub

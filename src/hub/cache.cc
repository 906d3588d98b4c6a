#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "core/fail.h"
#include "files/folder.h"
#include "files/json.h"
#include "files/output_file.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The paths below `folder`, sorted; none if it cannot be read.
std::vector<fs::path> PathsBelow(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> SnapshotNames(const fs::path& repo_folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(repo_folder / "snapshots", error), end; !error && it != end;
       it.increment(error)) {
    if (IsFolder(it->path())) names.push_back(it->path().filename().string());
  }
  return names;
}

// What refs/<revision> holds; empty if there is no such file. It is compared with names only, never followed.
std::string ReadRef(const fs::path& repo_folder, const std::string& revision) {
  std::ifstream file(repo_folder / "refs" / revision, std::ios::binary);
  std::string commit;
  file >> commit;  // up to white space: other tools may have ended the line
  return commit;
}

bool HasUnfinishedBlobs(const fs::path& repo_folder) {
  const std::vector<fs::path> blobs = PathsBelow(repo_folder / "blobs");
  return std::any_of(blobs.begin(), blobs.end(),
                     [](const fs::path& path) { return path.extension() == ".incomplete"; });
}

// The shards that `index` names and its folder does not have. An index that cannot be read has none: the
// loader says better what is wrong with it.
void CollectMissingShards(const fs::path& index, std::set<std::string>& missing) {
  try {
    const Json json = ReadJsonFile(index);
    for (const Json& shard : json.at("weight_map")) {
      const std::string name = shard.get<std::string>();
      if (IsPlainPath(name) && !IsFile(index.parent_path() / name)) missing.insert(name);
    }
  } catch (const std::exception&) {
  }
}

// Links to blobs that are not there, and shards of weights that were never linked.
std::set<std::string> MissingFiles(const fs::path& snapshot) {
  std::set<std::string> missing;
  for (const fs::path& path : PathsBelow(snapshot)) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      missing.insert(path.lexically_relative(snapshot).string());
    } else if (path.filename().string().ends_with(".safetensors.index.json")) {
      CollectMissingShards(path, missing);
    }
  }
  return missing;
}

std::string PullAdvice(const RepoId& repo, const char* what) {
  return fmt::format("qwen-image pull {} {}", repo.ToString(), what);
}

[[noreturn]] void FailWithoutRevision(const fs::path& repo_folder, const RepoId& repo) {
  std::string known;
  for (const fs::path& path : PathsBelow(repo_folder / "refs")) {
    if (!IsFile(path)) continue;
    known +=
        (known.empty() ? "" : ", ") + Printable(path.lexically_relative(repo_folder / "refs").string(), 80);
  }
  Fail(ErrorKind::kBadInput, "{} is in the Hugging Face cache ({}), but not its revision {}{}; {}",
       repo.FullName(), repo_folder.string(), Printable(repo.Revision(), 80),
       known.empty() ? "" : fmt::format(" (there is: {})", known), PullAdvice(repo, "downloads it"));
}

// The name of the snapshot that the revision means; nothing if it is not there.
std::optional<std::string> CommitOfRevision(const fs::path& repo_folder, const RepoId& repo,
                                            const std::vector<std::string>& snapshots) {
  const auto is_there = [&](const std::string& commit) {
    return std::find(snapshots.begin(), snapshots.end(), commit) != snapshots.end();
  };
  const std::string revision = repo.Revision();
  if (const std::string commit = ReadRef(repo_folder, revision); is_there(commit)) return commit;
  if (IsCommitHash(revision) && is_there(revision)) return revision;
  return std::nullopt;
}

// The name of the snapshot that `repo` means.
std::string ChooseCommit(const fs::path& repo_folder, const RepoId& repo) {
  const std::vector<std::string> snapshots = SnapshotNames(repo_folder);
  if (const auto commit = CommitOfRevision(repo_folder, repo, snapshots)) return *commit;
  // Refs are written last, so an interrupted first download has none.
  if (HasUnfinishedBlobs(repo_folder)) {
    Fail(ErrorKind::kBadInput, "the download of {} to the Hugging Face cache ({}) was not finished; {}",
         repo.ToString(), repo_folder.string(), PullAdvice(repo, "resumes it"));
  }
  if (repo.revision.empty() && snapshots.size() == 1) return snapshots.front();
  FailWithoutRevision(repo_folder, repo);
}

}  // namespace

fs::path RepoFolder(const fs::path& cache, const RepoId& repo) {
  return cache / fmt::format("models--{}--{}", repo.owner, repo.name);
}

fs::path FindSnapshot(const fs::path& cache, const RepoId& repo) {
  const fs::path repo_folder = RepoFolder(cache, repo);
  if (!IsFolder(repo_folder)) {
    Fail(ErrorKind::kBadInput, "{} is neither a folder here nor a model in the Hugging Face cache ({}); {}",
         repo.ToString(), cache.string(), PullAdvice(repo, "downloads it"));
  }
  const fs::path snapshot = repo_folder / "snapshots" / ChooseCommit(repo_folder, repo);
  if (const std::set<std::string> missing = MissingFiles(snapshot); !missing.empty()) {
    Fail(ErrorKind::kBadInput, "{} is not complete in the Hugging Face cache: {} file{} missing, e.g. {}; {}",
         repo.ToString(), missing.size(), missing.size() == 1 ? " is" : "s are", Printable(*missing.begin()),
         PullAdvice(repo, "fetches what is missing"));
  }
  return snapshot;
}

std::optional<fs::path> SnapshotFolder(const fs::path& cache, const RepoId& repo) {
  const fs::path repo_folder = RepoFolder(cache, repo);
  const std::vector<std::string> snapshots = SnapshotNames(repo_folder);
  std::optional<std::string> commit = CommitOfRevision(repo_folder, repo, snapshots);
  if (!commit && repo.revision.empty() && snapshots.size() == 1) commit = snapshots.front();
  if (!commit) return std::nullopt;
  return repo_folder / "snapshots" / *commit;
}

void MakeFolders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    Fail(ErrorKind::kCannotWrite, "cannot create the folder {}: {}", folder.string(), error.message());
}

void LinkBlob(const fs::path& repo_folder, const std::string& commit, const std::string& path,
              const std::string& hash) {
  const fs::path link = repo_folder / "snapshots" / commit / path;
  MakeFolders(link.parent_path());
  const fs::path target = (repo_folder / "blobs" / hash).lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return;
  // A name that is already taken cannot be linked, but it can be replaced in one step.
  const fs::path temporary = link.parent_path() / fmt::format(".{}.link-{}", hash, getpid());
  fs::remove(temporary, error);
  if (symlink(target.c_str(), temporary.c_str()) != 0 || rename(temporary.c_str(), link.c_str()) != 0) {
    const int reason = errno;
    fs::remove(temporary, error);
    Fail(ErrorKind::kCannotWrite, "cannot create the link {}: {}", link.string(), std::strerror(reason));
  }
}

void WriteRef(const fs::path& repo_folder, const std::string& revision, const std::string& commit) {
  if (revision == commit || ReadRef(repo_folder, revision) == commit) return;
  const fs::path ref = repo_folder / "refs" / revision;
  MakeFolders(ref.parent_path());
  OutputFile file(ref);
  file.Write(commit.data(), commit.size());  // without a line break: huggingface_hub takes the text as it is
  file.Commit();
}

}  // namespace qwen_image::hub

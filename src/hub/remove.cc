#include "hub/remove.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "core/fail.h"
#include "files/text.h"
#include "hub/cache.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 64;  // of folders; pull makes a few

// A folder that is held open: what happens to its name in the meantime does not matter.
class Folder {
 public:
  explicit Folder(int descriptor) : descriptor_(descriptor) {}
  Folder(Folder&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Folder& operator=(Folder&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Folder() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  // Not if it is a link.
  Folder Enter(const std::string& name) const {
    return Folder(openat(descriptor_, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const int copy = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* stream = copy < 0 ? nullptr : fdopendir(copy);
    if (!stream) {
      if (copy >= 0) close(copy);
      return names;
    }
    while (const dirent* entry = readdir(stream)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    closedir(stream);
    return names;
  }
  std::optional<struct stat> StatusOf(const std::string& name) const {
    struct stat status;
    if (fstatat(descriptor_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
    return status;
  }
  std::string LinkTarget(const std::string& name) const {
    char target[4096];
    const ssize_t size = readlinkat(descriptor_, name.c_str(), target, sizeof target);
    return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
  }
  bool RemoveName(const std::string& name) const { return unlinkat(descriptor_, name.c_str(), 0) == 0; }
  bool RemoveIfEmpty(const std::string& name) const {
    return unlinkat(descriptor_, name.c_str(), AT_REMOVEDIR) == 0;
  }

 private:
  int descriptor_;
};

std::vector<std::string> PartsOf(const std::string& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path)) parts.push_back(part.string());
  return parts;
}

// The blob that a link `depth` folders below snapshots/<commit> names; empty for a link to anything else.
std::string BlobOf(const std::string& target, size_t depth) {
  std::string way;
  for (size_t i = 0; i < depth + 2; ++i) way += "../";
  way += "blobs/";
  if (!target.starts_with(way)) return "";
  const std::string name = target.substr(way.size());
  return IsPlainPath(name) && name.find('/') == name.npos ? name : "";
}

class Remover {
 public:
  Remover(Folder repo, Folder snapshots) : repo_(std::move(repo)), snapshots_(std::move(snapshots)) {}

  RemovedFiles Run(const std::vector<std::string>& paths) {
    for (const std::string& commit : snapshots_.Names()) {
      const Folder snapshot = snapshots_.Enter(commit);
      if (!snapshot.open()) continue;
      for (const std::string& path : paths) RemovePath(snapshot, path, PartsOf(path), 0);
    }
    for (const std::string& commit : snapshots_.Names()) snapshots_.RemoveIfEmpty(commit);
    std::set<std::string> named;  // by what is left
    const bool something_left = CollectNamed(snapshots_, named, 0);
    const Folder blobs = repo_.Enter("blobs");
    for (const std::string& blob : blobs_) {
      if (!named.contains(blob)) RemoveBlob(blobs, blob);
    }
    if (!something_left) RemoveRest(blobs);
    return std::move(removed_);
  }

 private:
  void RemovePath(const Folder& folder, const std::string& path, const std::vector<std::string>& parts,
                  size_t depth) {
    if (depth + 1 < parts.size()) {
      const Folder next = folder.Enter(parts[depth]);
      if (!next.open()) return;
      RemovePath(next, path, parts, depth + 1);
      folder.RemoveIfEmpty(parts[depth]);
      return;
    }
    const std::string& name = parts[depth];
    const auto status = folder.StatusOf(name);
    if (!status || !(S_ISREG(status->st_mode) || S_ISLNK(status->st_mode))) return;
    const std::string blob =
        S_ISLNK(status->st_mode) ? BlobOf(folder.LinkTarget(name), depth) : std::string();
    if (!folder.RemoveName(name)) {
      Fail(ErrorKind::kCannotWrite, "cannot delete {}: {}", Printable(path), std::strerror(errno));
    }
    if (!blob.empty()) blobs_.insert(blob);
    if (S_ISREG(status->st_mode)) CountFreed(*status);
    if (std::find(removed_.paths.begin(), removed_.paths.end(), path) == removed_.paths.end())
      removed_.paths.push_back(path);
  }

  // Adds the last part of every link's target; whether there is any file or link.
  static bool CollectNamed(const Folder& folder, std::set<std::string>& named, int depth) {
    bool found = false;
    for (const std::string& name : folder.Names()) {
      const auto status = folder.StatusOf(name);
      if (status && S_ISDIR(status->st_mode)) {
        const Folder below = folder.Enter(name);
        // What cannot be looked into may name anything: it is left alone, and so is the rest.
        found |= !below.open() || depth >= kMaxDepth || CollectNamed(below, named, depth + 1);
      } else {
        found = true;
        if (status && S_ISLNK(status->st_mode))
          named.insert(fs::path(folder.LinkTarget(name)).filename().string());
      }
    }
    return found;
  }

  void CountFreed(const struct stat& status) {
    if (status.st_nlink <= 1) removed_.bytes += static_cast<uint64_t>(status.st_size);
  }

  void RemoveBlob(const Folder& blobs, const std::string& name) {
    if (!blobs.open()) return;
    const auto status = blobs.StatusOf(name);
    if (status && S_ISREG(status->st_mode) && blobs.RemoveName(name)) CountFreed(*status);
  }

  void RemoveRest(const Folder& blobs) {
    if (blobs.open()) {
      for (const std::string& name : blobs.Names()) {
        if (name.ends_with(".incomplete")) RemoveBlob(blobs, name);
      }
    }
    RemoveRefs(repo_, "refs", 0);
    repo_.RemoveIfEmpty("blobs");
    repo_.RemoveIfEmpty("snapshots");
  }

  static void RemoveRefs(const Folder& above, const std::string& name, int depth) {
    const Folder refs = above.Enter(name);
    if (!refs.open() || depth > kMaxDepth) return;
    for (const std::string& ref : refs.Names()) {
      const auto status = refs.StatusOf(ref);
      if (status && S_ISDIR(status->st_mode)) {
        RemoveRefs(refs, ref, depth + 1);
      } else {
        refs.RemoveName(ref);
      }
    }
    above.RemoveIfEmpty(name);
  }

  Folder repo_, snapshots_;
  std::set<std::string> blobs_;  // that lost a name
  RemovedFiles removed_;
};

// Throws if `name` is there, but not a folder.
Folder EnterOrRefuse(const Folder& above, const std::string& name, const fs::path& shown) {
  Folder folder = above.Enter(name);
  if (!folder.open() && errno != ENOENT) {
    Fail(ErrorKind::kBadInput, "{} is a link or no folder; nothing was deleted", shown.string());
  }
  return folder;
}

}  // namespace

RemovedFiles RemoveFiles(const fs::path& cache, const RepoId& repo, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!IsPlainPath(path)) Fail(ErrorKind::kBadInput, "{} is not a path in a repository", Quoted(path));
  }
  const Folder root(::open(cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.open()) return {};
  const fs::path folder = RepoFolder(cache, repo);
  const std::string name = folder.filename().string();
  Folder repo_folder = EnterOrRefuse(root, name, folder);
  if (!repo_folder.open()) return {};
  // An interrupted download has no snapshots yet; the folder of a repository that was removed before,
  // nothing.
  Folder snapshots = EnterOrRefuse(repo_folder, "snapshots", folder / "snapshots");
  RemovedFiles removed = Remover(std::move(repo_folder), std::move(snapshots)).Run(paths);
  root.RemoveIfEmpty(name);
  return removed;
}

}  // namespace qwen_image::hub

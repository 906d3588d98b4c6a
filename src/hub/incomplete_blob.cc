#include "hub/incomplete_blob.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/fail.h"
#include "hub/cache.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void FailToWrite(const fs::path& path) {
  const int reason = errno;
  Fail(ErrorKind::kCannotWrite, "cannot write {}: {}", path.string(), std::strerror(reason));
}

fs::path BlobPath(const fs::path& repo_folder, const std::string& hash) {
  return repo_folder / "blobs" / hash;
}

fs::path IncompletePath(const fs::path& repo_folder, const std::string& hash) {
  return repo_folder / "blobs" / (hash + ".incomplete");
}

}  // namespace

BlobLock::BlobLock(const fs::path& repo_folder, const std::string& hash) {
  const fs::path folder = repo_folder.parent_path() / ".locks" / repo_folder.filename();
  MakeFolders(folder);
  const fs::path path = folder / (hash + ".lock");
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd_ < 0) FailToWrite(path);
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  if (reason != EWOULDBLOCK) return;  // a file system without locks
  close(fd_);
  Fail(ErrorKind::kCannotWrite, "another program is downloading the same file (its lock is {})",
       path.string());
}

BlobLock::~BlobLock() { close(fd_); }

IncompleteBlob::IncompleteBlob(const fs::path& repo_folder, const std::string& hash, uint64_t expected_size,
                               const std::function<void()>& pause)
    : lock_(repo_folder, hash),
      final_path_(BlobPath(repo_folder, hash)),
      path_(IncompletePath(repo_folder, hash)),
      hash_(hash),
      expected_size_(expected_size),
      digest_(Digest::KindOf(hash), expected_size) {
  MakeFolders(path_.parent_path());
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) FailToWrite(path_);
  try {
    TakeIn(pause);
  } catch (...) {
    close(fd_);
    throw;
  }
}

IncompleteBlob::~IncompleteBlob() { close(fd_); }

void IncompleteBlob::TakeIn(const std::function<void()>& pause) {
  struct stat status;
  if (fstat(fd_, &status) != 0) FailToWrite(path_);
  if (static_cast<uint64_t>(status.st_size) > expected_size_) return Restart();
  std::vector<char> block(size_t{1} << 20);
  for (ssize_t count; (count = read(fd_, block.data(), block.size())) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) FailToWrite(path_);
    digest_.Add({block.data(), static_cast<size_t>(count)});
    size_ += static_cast<uint64_t>(count);
    pause();
  }
  has_old_bytes_ = size_ > 0;
}

void IncompleteBlob::Append(std::string_view bytes) {
  if (bytes.size() > expected_size_ - size_)
    Fail(ErrorKind::kInternal, "{} would become larger than it may", path_.string());
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) FailToWrite(path_);
    digest_.Add(bytes.substr(0, static_cast<size_t>(count)));
    size_ += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void IncompleteBlob::Restart() {
  if (ftruncate(fd_, 0) != 0) FailToWrite(path_);
  digest_.Restart();
  size_ = 0;
  has_old_bytes_ = false;
}

bool IncompleteBlob::HashIsRight() { return digest_.Finish() == hash_; }

void IncompleteBlob::Commit() {
  // The name promises these contents, also after a power failure.
  if (fsync(fd_) != 0 || rename(path_.c_str(), final_path_.c_str()) != 0) FailToWrite(final_path_);
}

void IncompleteBlob::Discard() { unlink(path_.c_str()); }

uint64_t IncompleteSize(const fs::path& repo_folder, const std::string& hash, uint64_t expected_size) {
  std::error_code error;
  const uint64_t size = fs::file_size(IncompletePath(repo_folder, hash), error);
  return error || size > expected_size ? 0 : size;
}

uint64_t IncompleteBytes(const fs::path& repo_folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(repo_folder / "blobs", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code unreadable;
    if (it->path().extension() != ".incomplete" || !it->is_regular_file(unreadable)) continue;
    const uint64_t size = it->file_size(unreadable);
    if (!unreadable) bytes += size;
  }
  return bytes;
}

}  // namespace qwen_image::hub

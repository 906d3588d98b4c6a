#include "files/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void FailToWrite(const fs::path& target, std::string_view reason) {
  Fail(ErrorKind::kCannotWrite, "cannot write {}: {}", target.string(), reason);
}

// Pipes and character devices must not be replaced by a file: the bytes are to go there.
bool IsWrittenDirectly(const fs::path& target) {
  struct stat status;
  return stat(target.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
}

void CheckTarget(const fs::path& target) {
  if (target.empty()) FailToWrite("the output", "its name is empty");
  struct stat status;
  const bool exists = stat(target.c_str(), &status) == 0;
  const int reason = exists ? 0 : errno;
  if ((exists && S_ISDIR(status.st_mode)) || !target.has_filename()) {
    FailToWrite(target, "it is a folder; the name of a file is expected");
  }
  if (exists && !S_ISREG(status.st_mode)) FailToWrite(target, "it is neither a regular file nor a pipe");
  fs::path folder = target.parent_path();
  if (folder.empty()) folder = ".";
  if (stat(folder.c_str(), &status) != 0) {
    FailToWrite(target,
                fmt::format("the folder {} cannot be used: {}", folder.string(), std::strerror(errno)));
  }
  if (!S_ISDIR(status.st_mode)) FailToWrite(target, fmt::format("{} is not a folder", folder.string()));
  if (!exists && reason != ENOENT) FailToWrite(target, std::strerror(reason));  // its name is too long, …
}

// What the names of temporary files for `target` begin with; the writer's process id and a number follow.
std::string TemporaryPrefix(const fs::path& target) {
  constexpr size_t kMaxStem = 200;  // file names have at most 255 bytes
  return fmt::format(".{}.tmp-", target.filename().string().substr(0, kMaxStem));
}

// The process that wrote a temporary file of this name; 0: the name is another's.
pid_t WriterIn(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  pid_t process = 0;
  unsigned number = 0;
  const char *const begin = name.data() + prefix.size(), *const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(begin, end, process);
  if (error != std::errc() || process <= 0 || after == end || *after != '-') return 0;
  const auto [rest, other_error] = std::from_chars(after + 1, end, number);
  return other_error == std::errc() && rest == end ? process : 0;
}

// Whoever writes a temporary file holds a lock on it. The process id alone would not do: in a container every
// run may have the same one, and in another container it may be that of another process.
bool IsLeftBehind(const fs::path& temporary, pid_t writer) {
  const bool runs = kill(writer, 0) == 0 || errno != ESRCH;
  if (runs && writer != getpid()) return false;
  struct stat status;
  if (lstat(temporary.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const int fd = open(temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return !locked;
}

// Held from the birth of a temporary file to its lock, and while looking for those without one.
std::mutex temporaries_mutex;

// Opens a new file beside `target`. Not mkstemp: its files are readable by their owner only, whatever the
// umask says.
int OpenTemporary(const fs::path& target, mode_t mode, fs::path* temporary) {
  static int counter = 0;
  const std::lock_guard lock(temporaries_mutex);
  const std::string prefix = TemporaryPrefix(target);
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    *temporary = target.parent_path() / fmt::format("{}{}-{}", prefix, getpid(), counter++);
    fd = open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno != EEXIST) break;  // EEXIST: left behind by a killed process with the same id
  }
  if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB);  // where a file system has no locks, the process id must do
  return fd;
}

}  // namespace

OutputFile::OutputFile(const fs::path& target, Folder folder) : target_(target) {
  int fd = -1;
  if (IsWrittenDirectly(target)) {
    fd = open(target.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    CheckTarget(target);
    std::error_code error;
    // A rename would replace a link by a file and leave what it points to unchanged.
    if (fs::is_symlink(target, error)) {
      const fs::path real = fs::canonical(target, error);
      if (!error) target_ = real;
    }
    if (folder == Folder::kUsers) RemoveLeftovers(target_);
    fd = OpenTemporary(target_, folder == Folder::kOwn ? 0600 : 0666, &temporary_);
  }
  if (fd < 0) {
    const int error = errno;
    FailToWrite(target, std::strerror(error));
  }
  file_ = fdopen(fd, "wb");
  if (!file_) {
    const int error = errno;
    close(fd);
    if (!temporary_.empty()) unlink(temporary_.c_str());
    FailToWrite(target, std::strerror(error));
  }
}

OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::Write(const void* data, size_t size) {
  if (!file_) Fail(ErrorKind::kInternal, "{} is written after it was closed", target_.string());
  if (size > 0 && std::fwrite(data, 1, size, file_) != size) FailToWrite(target_, std::strerror(errno));
}

void OutputFile::Sync() {
  if (!file_) Fail(ErrorKind::kInternal, "{} is written after it was closed", target_.string());
  if (std::fflush(file_) != 0) FailToWrite(target_, std::strerror(errno));
  // A pipe has no disk to wait for.
  if (fsync(fileno(file_)) != 0 && errno != EINVAL && errno != EROFS)
    FailToWrite(target_, std::strerror(errno));
}

void OutputFile::Commit() {
  if (!file_) Fail(ErrorKind::kInternal, "{} is committed twice", target_.string());
  const bool failed_before = std::ferror(file_) != 0;
  // The last bytes reach the file here, so this is where a full disk often shows.
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed) FailToWrite(target_, std::strerror(errno));
  if (failed_before) FailToWrite(target_, "an earlier write failed");
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) FailToWrite(target_, std::strerror(errno));
  temporary_.clear();
}

void CheckWritable(const fs::path& target) {
  if (IsWrittenDirectly(target)) {
    // Opening a pipe and closing it again would tell its reader that all is done.
    if (access(target.c_str(), W_OK) != 0) FailToWrite(target, std::strerror(errno));
    return;
  }
  const OutputFile probe(target);
}

void RemoveLeftovers(const fs::path& target) {
  const std::lock_guard lock(temporaries_mutex);
  const std::string prefix = TemporaryPrefix(target);
  std::error_code error;  // a folder that cannot be read is no reason not to write
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const pid_t writer = WriterIn(path.filename().string(), prefix);
    if (writer > 0 && IsLeftBehind(path, writer)) unlink(path.c_str());
  }
}

}  // namespace qwen_image

#include "files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void FailToWrite(const fs::path& target, std::string_view reason) {
  Fail(ErrorKind::kCannotWrite, "cannot write {}: {}", target.string(), reason);
}

// Pipes and character devices must not be replaced by a file; whoever names one wants the bytes to go there.
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

// Opens a new file beside `target`. Not mkstemp: its files are readable by their owner only, whatever the
// umask says.
int OpenTemporary(const fs::path& target, fs::path* temporary) {
  static std::atomic<int> counter = 0;
  constexpr size_t kMaxStem = 200;  // file names have at most 255 bytes
  const std::string stem = target.filename().string().substr(0, kMaxStem);
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    *temporary = target.parent_path() / fmt::format(".{}.tmp-{}-{}", stem, getpid(), counter++);
    fd = open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;  // EEXIST: left behind by a killed process with the same id
  }
  return fd;
}

}  // namespace

OutputFile::OutputFile(const fs::path& target) : target_(target) {
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
    fd = OpenTemporary(target_, &temporary_);
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

}  // namespace qwen_image

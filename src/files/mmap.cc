#include "files/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "files/file_times.h"
#include "files/mmap_guard.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else  // a compiler that was installed without its sanitizers
#define ASAN_POISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#endif

namespace qwen_image {
namespace {

// The last page of a mapping has zeros behind the file's end, which must not be read. The macros make the
// address sanitizer notice such a read; without it they do nothing.
size_t TailBytes(size_t size) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (page - size % page) % page;
}
void ForbidTail(const std::byte* data, size_t size) {
  ASAN_POISON_MEMORY_REGION(data + size, TailBytes(size));
}
void AllowTail(const std::byte* data, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(data + size, TailBytes(size));
}

FileStamp StampOf(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .seconds = ModifiedTime(status).tv_sec,
          .nanoseconds = ModifiedTime(status).tv_nsec};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // Without O_NONBLOCK the open of a FIFO would wait for a writer for ever.
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) Fail(ErrorKind::kBadInput, "cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status;
  if (fstat(fd.get(), &status) != 0) {
    Fail(ErrorKind::kBadInput, "cannot read {}: {}", path.string(), std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode))
    Fail(ErrorKind::kBadInput, "{} is a folder; a file is expected", path.string());
  if (!S_ISREG(status.st_mode)) {
    Fail(ErrorKind::kBadInput, "{} is not a regular file (it is a device, pipe or socket)", path.string());
  }
  if (static_cast<uintmax_t>(status.st_size) > SIZE_MAX / 2) {
    Fail(ErrorKind::kBadInput, "{} has {} bytes, more than this machine can address", path.string(),
         status.st_size);
  }
  size_ = static_cast<size_t>(status.st_size);
  stamp_ = StampOf(status);
  const timespec changed = ChangedTime(status);
  status_changed_ = changed.tv_sec * int64_t{1'000'000'000} + changed.tv_nsec;
  if (size_ == 0) return;  // mmap refuses a length of zero
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    // ENOMEM here is a limit on the address space (ulimit -v): the mapping itself needs no memory.
    Fail(error == ENOMEM ? ErrorKind::kOutOfMemory : ErrorKind::kBadInput,
         "cannot map the {} bytes of {}: {}", size_, path.string(), std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(data);
  ForbidTail(data_, size_);
  guarded_ = GuardMapping(bytes());
}

MappedFile::~MappedFile() {
  if (!data_) return;
  UnguardMapping(guarded_);
  AllowTail(data_, size_);
  munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stamp_(other.stamp_),
      status_changed_(other.status_changed_),
      guarded_(std::exchange(other.guarded_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stamp_, other.stamp_);
  std::swap(status_changed_, other.status_changed_);
  std::swap(guarded_, other.guarded_);
  return *this;
}

bool MappedFile::damaged() const {
  if (guarded_ && WasCut(guarded_)) return true;
  struct stat status;
  if (!data_ || stat(path_.c_str(), &status) != 0) return false;
  const FileStamp now = StampOf(status);
  return now.device == stamp_.device && now.inode == stamp_.inode && now != stamp_;
}

void MappedFile::ThrowIfDamaged() const {
  if (damaged())
    Fail(ErrorKind::kBadInput, "{} was changed or truncated while it was in use", path_.string());
}

void MappedFile::ReleasePages() const { qwen_image::ReleasePages(bytes()); }

void ReleasePages(std::span<const std::byte> part) {
  if (part.empty()) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(part.data());
  const size_t before = address % page;  // madvise wants the start of a page
  // Only advice: if the system refuses it, the pages simply stay.
  madvise(reinterpret_cast<void*>(address - before), part.size() + before, MADV_DONTNEED);
}

}  // namespace qwen_image

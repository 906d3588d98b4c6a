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

namespace qwen_image {
namespace {

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
  if (size_ == 0) return;  // mmap refuses a length of zero
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    // ENOMEM here is a limit on the address space (ulimit -v): the mapping itself needs no memory.
    Fail(error == ENOMEM ? ErrorKind::kOutOfMemory : ErrorKind::kBadInput,
         "cannot map the {} bytes of {}: {}", size_, path.string(), std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
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

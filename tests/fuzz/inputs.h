// Files for parsers that want a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace qwen_image {

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A folder that is there as long as the program runs, in memory if possible. Writing a file again is much
// quicker than making a folder for every input.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code error;
    std::string name =
        (std::filesystem::is_directory(memory, error) ? memory : std::filesystem::temp_directory_path()) /
        "qwen_image_fuzz_XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// "a\0b" → {"a", "b"}: text and a file in one input. Without a NUL the second is empty.
struct TwoParts {
  std::string_view first, second;
};
inline TwoParts SplitAtNul(std::string_view bytes) {
  const size_t nul = bytes.find('\0');
  return {bytes.substr(0, nul), nul == bytes.npos ? "" : bytes.substr(nul + 1)};
}

}  // namespace qwen_image

// A whole file mapped read-only into memory. Only regular files are accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace qwen_image {

class GuardedMapping;

// What tells that a file is the same and unchanged.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, seconds = 0, nanoseconds = 0;  // of the last change
  bool operator==(const FileStamp&) const = default;
};

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws Error kBadInput
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }  // when it was mapped
  // When content, name or rights of the file were changed last, in nanoseconds: unlike the time in the stamp
  // it cannot be set, so that a file under the name of another is found out.
  int64_t status_changed() const { return status_changed_; }

  // Tells the system that the pages are not needed for now; they are read again on the next access.
  void ReleasePages() const;

  // Whether the file was truncated or overwritten since it was mapped: what was read from it may be
  // neither the old nor the new content. (One that was replaced under its name stays as it was here.) Without
  // InstallTruncationGuard, reading a page that is gone ends the process before this can be asked.
  bool damaged() const;
  void ThrowIfDamaged() const;  // Error kBadInput

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileStamp stamp_;
  int64_t status_changed_ = 0;
  GuardedMapping* guarded_ = nullptr;
};

// The same for a part of a mapped file, together with the rest of the pages that it begins and ends in.
void ReleasePages(std::span<const std::byte> part);

}  // namespace qwen_image

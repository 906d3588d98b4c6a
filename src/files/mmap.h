// A whole file mapped read-only into memory. Only regular files are accepted.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace qwen_image {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws Error kBadInput
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the system that the pages are not needed for now; they are read again on the next access.
  void ReleasePages() const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The same for a part of a mapped file, together with the rest of the pages that it begins and ends in.
void ReleasePages(std::span<const std::byte> part);

}  // namespace qwen_image

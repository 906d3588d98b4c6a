// NumPy .npz files: zip archives of .npy members, stored or deflated. Nothing is unpacked beyond the piece
// that is asked for, and nothing is written to disk.
//
// Refused: members that are no .npy files, absolute names and names with "..", names that occur twice,
// encryption, other kinds of compression, sizes that deflate cannot reach, members that share bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files/npy_header.h"

namespace qwen_image {

struct NpzMember {
  std::string name;  // without ".npy"
  NpyHeader header;
};

class NpzFile {
 public:
  explicit NpzFile(const std::filesystem::path& path);  // throws Error kBadInput
  NpzFile(NpzFile&&) noexcept;
  NpzFile& operator=(NpzFile&&) noexcept;
  ~NpzFile();

  const std::vector<NpzMember>& members() const;  // in the order of the archive

  // The bytes of member `index` from `offset` of its data on. Quick where the last call left off; a step back
  // starts the member again. Throws Error kBadInput for damaged data; the checksum is known after the last
  // byte.
  void Read(size_t index, uint64_t offset, std::span<std::byte> out) const;

  void ReleasePages() const;  // as MappedFile's

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image

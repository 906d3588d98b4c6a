// SafetensorsWriter: writes a safetensors file of any size in one go. The header comes first, so the tensors
// are planned before the first byte; their values then follow in the same order, in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "files/output_file.h"

namespace qwen_image {

struct PlannedTensor {
  std::string name;
  DType dtype = DType::kF32;  // one that safetensors has
  Shape shape;

  int64_t bytes() const;
};

class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  // Throws Error kCannotWrite, or kBadInput for a name that is no UTF-8 or is there twice.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const PlannedTensor> tensors,
                    const Metadata& metadata, OutputFile::Folder folder = OutputFile::Folder::kUsers);

  void Append(std::span<const std::byte> bytes);  // throws Error kCannotWrite
  // When all values are written: waits for the disk and puts the file in its place. A writer that is
  // destroyed without it leaves nothing.
  void Finish();

  // The size that a file of these will have.
  static int64_t FileBytes(std::span<const PlannedTensor> tensors, const Metadata& metadata);

 private:
  OutputFile file_;
  std::string path_;
  int64_t missing_;  // bytes of values that were planned and not written yet
};

}  // namespace qwen_image

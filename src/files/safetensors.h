// safetensors: an 8-byte header length, a JSON header, then the tensors' bytes. Everything is checked before
// use: lengths, offsets (in the file, no overlap, no gap), dtypes, shape × dtype = span.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/tensor.h"
#include "files/mmap.h"

namespace qwen_image {

struct SafetensorsEntry {
  std::string dtype;  // as the file spells it; may be one this program does not compute with
  Shape shape;
  std::span<const std::byte> bytes;  // in the mapped file
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // throws Error kBadInput
  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

// The type for a dtype this program computes with (F32, F16, BF16), else nothing.
std::optional<DType> ComputeDType(std::string_view name);

}  // namespace qwen_image

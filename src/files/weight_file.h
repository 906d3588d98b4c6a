// A memory-mapped file of named tensors, whatever its format: what safetensors and GGUF have in common.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "files/mmap.h"

namespace qwen_image {

struct StoredTensor {
  DType dtype = DType::kF32;         // may be one that this program does not compute with
  Shape shape;                       // torch's order
  std::span<const std::byte> bytes;  // in the mapped file
};

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }

  // Puts `parts` in the place of a tensor that is several in one; their bytes are its own. Those whose name
  // is taken already are left out, and returned.
  std::vector<std::string> Divide(const std::string& name, std::map<std::string, StoredTensor> parts);

 protected:
  explicit WeightFile(const std::filesystem::path& path) : file_(path) {}
  WeightFile(WeightFile&&) = default;
  WeightFile& operator=(WeightFile&&) = default;

  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A GGUF file if it starts as one, whatever its name, else safetensors. Throws Error kBadInput.
std::unique_ptr<WeightFile> OpenWeightFile(const std::filesystem::path& path);

}  // namespace qwen_image

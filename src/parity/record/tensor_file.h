// One .npy, .npz or .safetensors file as a list of named tensors whose values are read in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/block_format.h"
#include "core/tensor.h"

namespace qwen_image::record {

class TensorFile {
 public:
  struct Member {
    std::string name;  // empty for the only tensor of a .npy file
    Shape shape;
    const BlockFormat* type = nullptr;  // a plain type that NumPy has a name for
    int64_t count = 0;
  };

  virtual ~TensorFile() = default;
  const std::vector<Member>& members() const { return members_; }
  std::optional<size_t> Find(const std::string& name);

  virtual void Read(size_t member, int64_t begin, int64_t count, double* out) = 0;
  virtual void Release() = 0;  // frees memory and mappings; the next Read gets them again

 protected:
  std::vector<Member> members_;

 private:
  std::unordered_map<std::string, size_t> index_;  // built by the first Find
};

bool IsTensorFile(const std::filesystem::path& path);  // judged by its extension
// Throws Error kBadInput.
std::unique_ptr<TensorFile> OpenTensorFile(const std::filesystem::path& path);

}  // namespace qwen_image::record

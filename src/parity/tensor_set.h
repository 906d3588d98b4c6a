// The named tensors of anything that can be compared:
//  - a run: a folder with manifest.json, its tensors in .npy files or packed into .safetensors;
//  - a plain folder of .npy, .npz and .safetensors files: `a/b.npy` is called "a/b", the member `c` of
//    `a/b.npz` "a/b/c";
//  - one .npy, .npz or .safetensors file.
// The order is the manifest's; without one it is natural: step2 comes before step10.
//
// Only headers are read at first. Values are read in pieces and let go again, so that sets larger than memory
// can be compared. Not for use by several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"

namespace qwen_image {

struct TensorInfo {
  std::string name;
  std::string own_name;  // in its file; another than `name` if a map renamed it
  Shape shape;
  std::string dtype;  // NumPy's name: "float32", "int64"; "bfloat16" where a safetensors file holds it
  int64_t count = 0;
  bool is_float = false;
};

class TensorSet {
 public:
  // Throws Error kBadInput: broken files, no tensors, names that occur twice, paths that leave the folder.
  static TensorSet Open(const std::filesystem::path& path);
  TensorSet(TensorSet&&) noexcept;
  TensorSet& operator=(TensorSet&&) noexcept;
  ~TensorSet();

  const std::filesystem::path& path() const;
  const Json& manifest() const;  // null where there is none
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* Find(const std::string& name) const;  // null where there is none

  // Elements begin … begin + count of a tensor of this set. Quick in ascending order.
  void Read(const TensorInfo& tensor, int64_t begin, int64_t count, double* out) const;
  std::vector<float> ReadAll(const TensorInfo& tensor) const;

  // Gives every tensor the name that `new_name` returns for its own. Throws Error kBadInput if two get the
  // same.
  void Rename(const std::function<std::string(const std::string&)>& new_name);

 private:
  struct Impl;
  explicit TensorSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image

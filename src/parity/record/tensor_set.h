// TensorSet: the named tensors of anything that can be compared, which is
//  - a run: a folder with manifest.json, its tensors in .npy files or packed into .safetensors;
//  - a plain folder of .npy, .npz and .safetensors files: `a/b.npy` is called "a/b", the member `c` of
//    `a/b.npz` "a/b/c";
//  - one .npy, .npz or .safetensors file.
// The order is the manifest's. Without a manifest it is that of a run, if a family gives all the names; else
// that of the one file, unless it is sorted by names, as many writers do. Otherwise it is unknown: known
// names come first, and all others after them with step2 before step10.
//
// Open reads only headers. Values are read in pieces and released again, so that sets larger than memory can
// be compared. Only one thread may use a set at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"

namespace qwen_image::record {

struct TensorInfo {
  std::string name;
  std::string own_name;  // the name in its file; differs from `name` if a map renamed the tensor
  Shape shape;
  std::string dtype;  // NumPy's name: "float32", "int64"; "bfloat16" where a safetensors file holds it
  int64_t count = 0;
  bool is_float = false;
};

// What tells which tensor was computed first.
enum class TensorOrder { kUnknown, kManifest, kNames, kFile };

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
  TensorOrder order() const;
  const TensorInfo* Find(const std::string& name) const;  // null where there is none

  // Reads the elements from `begin` to `begin + count` of a tensor of this set. Fast in ascending order.
  void Read(const TensorInfo& tensor, int64_t begin, int64_t count, double* out) const;
  std::vector<float> ReadAll(const TensorInfo& tensor) const;

  // Gives every tensor the name that `new_name` returns for its own name. Throws Error kBadInput if two
  // tensors get the same name.
  void Rename(const std::function<std::string(const std::string&)>& new_name);

 private:
  struct Impl;
  explicit TensorSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image::record

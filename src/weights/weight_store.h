// WeightStore: all tensors of one component of a model folder (single file or shards with an index),
// memory-mapped. WeightBinder: takes them out by name and shape; whatever is missing, misshapen, of a wrong
// type or left over is collected and thrown as one error, so that nothing is ever left at a random or zero
// value.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "files/safetensors.h"
#include "kernels/kernels.h"

namespace qwen_image {

class WeightStore {
 public:
  // Opens `<folder>/<stem>.safetensors.index.json` with its shards, or `<folder>/<stem>.safetensors`; stem is
  // "diffusion_pytorch_model" or "model", else that of the only such file there. Throws Error kBadInput.
  static WeightStore OpenFolder(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, const StoredTensor*>& tensors() const { return tensors_; }
  int64_t total_bytes() const;  // of all mapped files
  void ReleasePages() const;    // see MappedFile
  // Renames every tensor; used to bring the text encoder's two key styles to one. Of several prefixes that
  // fit a name, the longest counts. Throws Error kBadInput if two tensors would get the same name.
  void RenameKeys(const std::map<std::string, std::string>& prefixes /*old prefix → new prefix*/);

 private:
  void OpenShards(const std::filesystem::path& index);
  void AddFile(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*> tensors_;
};

class WeightBinder {
 public:
  explicit WeightBinder(const WeightStore& store) : store_(store) {}

  // Both return something empty (data == nullptr, no elements) when the tensor is missing or does not fit; it
  // must not be used before Finish() has returned.
  //
  // A matrix that stays in the file. `shape` may have more than two dimensions: the last ones are merged into
  // cols.
  WeightMatrix Matrix(const std::string& name, const Shape& shape);
  // A small tensor, copied and converted to float.
  std::vector<float> Floats(const std::string& name, const Shape& shape);

  // Tensors that are legal and not needed: `visual.*`, `*.time_conv.*`, … ('*' matches any text).
  void AllowUnused(std::string_view pattern);

  // Throws Error kBadInput that lists every problem found (all of them up to a readable number, then a
  // count).
  void Finish();

 private:
  // The tensor if it is there with this shape and a type to compute with, else null and the problem is noted.
  const StoredTensor* Take(const std::string& name, const Shape& shape);
  std::vector<std::string> Unexpected() const;
  std::string PrefixHint(const std::vector<std::string>& unexpected) const;

  const WeightStore& store_;
  std::set<std::string> taken_;
  std::vector<std::string> unused_patterns_;
  std::map<std::string, Shape> missing_;
  std::vector<std::string> misshapen_;   // lines of the message
  std::vector<std::string> wrong_type_;  // lines of the message
};

}  // namespace qwen_image

// WeightStore: all tensors of one component of a model, memory-mapped, under diffusers' names, whatever the
// files' format and names. WeightBinder (weights/binder.h) takes them out.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "families/weight_names.h"
#include "files/json.h"
#include "files/weight_file.h"
#include "weights/tensor.h"

namespace qwen_image {

class WeightStore {
 public:
  // `path` is a file (safetensors or GGUF, recognized by its content) or a folder. In a folder it opens
  // `<stem>.safetensors.index.json` with its shards, or `<stem>.safetensors`, with the stem
  // "diffusion_pytorch_model" or "model", else the only set of weights there. Throws Error kBadInput.
  // Names and layouts of other tools are brought to diffusers'; a file of another model is refused by name.
  WeightStore(const std::filesystem::path& path, Component component);

  const std::filesystem::path& path() const { return path_; }
  const WeightNames& family() const { return *family_; }
  // config.json beside the weights, where it is one of this component; else null.
  const Json& config() const { return config_; }
  const std::string& config_path() const { return config_path_; }
  const std::map<std::string, WeightTensor>& tensors() const { return tensors_; }
  const WeightTensor* Find(const std::string& name) const;
  // The first dimension of a tensor: 0 if it is missing or a scalar.
  int64_t Rows(const std::string& name) const;
  // How many modules of a list there are: 1 + the largest N of names that begin with "prefixN.".
  int64_t CountModules(const std::string& prefix) const;
  bool HasMarker(std::string_view name) const;  // a tensor that only says something, in any file
  // A value of a file's metadata, the first that is there; empty if there is none.
  std::string Metadata(const std::string& key) const;
  double MetadataNumber(const std::string& key, double fallback) const;
  int64_t MetadataCount(const std::string& key, int64_t fallback) const;  // from 1 to a million
  const std::vector<std::unique_ptr<WeightFile>>& files() const { return files_; }

  int64_t total_bytes() const;  // of all mapped files
  void ReleasePages() const;    // see MappedFile
  // Throws Error kBadInput if a file was changed or truncated since it was opened: nothing that was computed
  // with the weights can be trusted then.
  void ThrowIfDamaged() const;

 private:
  friend class WeightBinder;
  void ReadConfig(bool is_folder);
  void CollectTensors(bool is_folder);
  void TurnChannelsLast();

  std::filesystem::path path_;
  Component component_;
  const WeightNames* family_ = nullptr;
  Json config_;
  std::string config_path_;
  std::vector<std::unique_ptr<WeightFile>> files_;
  std::map<std::string, WeightTensor> tensors_;
};

}  // namespace qwen_image

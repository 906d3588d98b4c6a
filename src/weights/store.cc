#include "weights/store.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "weights/files.h"
#include "weights/foreign_names.h"
#include "weights/parts.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// The name of the file to open: an index before a single file, as diffusers does.
std::string ChooseFile(const fs::path& folder, const std::vector<std::string>& names) {
  const auto is_there = [&](const std::string& name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  std::vector<std::string> candidates;
  for (const std::string stem : {"diffusion_pytorch_model", "model"}) {
    for (const std::string_view ending : {kShardIndexEnding, kWeightsEnding}) {
      const std::string name = stem + std::string(ending);
      if (!is_there(name)) continue;
      candidates.push_back(name);
      break;
    }
  }
  if (candidates.empty()) candidates = NamesEndingWith(names, kShardIndexEnding);
  if (candidates.empty()) {
    candidates = NamesEndingWith(names, kWeightsEnding);
    if (!candidates.empty() && std::all_of(candidates.begin(), candidates.end(), LooksLikeShard)) {
      Fail(ErrorKind::kBadInput,
           "{} holds {} shards but no *{} that names them all; the download may be incomplete",
           folder.string(), candidates.size(), kShardIndexEnding);
    }
  }
  if (candidates.empty()) candidates = NamesEndingWith(names, kGgufEnding);
  if (candidates.empty()) FailWithoutWeights(folder, names);
  if (candidates.size() > 1) {
    for (std::string& name : candidates) name = Printable(name);
    Fail(ErrorKind::kBadInput, "{} holds more than one set of weights, and it is unclear which to use: {}",
         folder.string(), JoinNames(candidates));
  }
  return candidates[0];
}

// Files of another model, or of another part of this one, would only fail with hundreds of missing tensors.
void RefuseOthers(const fs::path& path, const WeightFile& file, Component component) {
  const bool vision = component == Component::kVisionEncoder;
  if (vision && HasNamesOf(file, component)) return;
  const Component needed = vision ? Component::kTextEncoder : component;  // which may be without a tower
  const RecognizedFile found = Recognize(file);
  const auto& components = found.components;
  if (std::find(components.begin(), components.end(), needed) != components.end()) return;
  if (!found.known()) return;  // a damaged or incomplete file: the list of what is missing says more
  Fail(ErrorKind::kBadInput, "{}: the {} is expected here, but this is {}", path.string(), NameOf(component),
       found.what);
}

// A folder of another model says so in its config.
void CheckConfigClass(const Json& config, const std::string& where, Component component) {
  const bool text = component == Component::kTextEncoder || component == Component::kVisionEncoder;
  const char* const key = text ? "model_type" : "_class_name";
  const std::string_view expected = text                                   ? "qwen2_5_vl"
                                    : component == Component::kTransformer ? "QwenImageTransformer2DModel"
                                                                           : "AutoencoderKLQwenImage";
  if (!config.is_object() || !config.contains(key) || !config[key].is_string()) return;
  const std::string found = config[key].get<std::string>();
  if (found == expected || (text && found.starts_with(expected))) return;
  Fail(ErrorKind::kBadInput,
       "{}: \"{}\" is {}, but the {} of Qwen-Image is {}; other models are not supported", where, key,
       Quoted(found), NameOf(component), expected);
}

// Tensors that no model computes with: signs, scales of quantized activations, tables that mflux saves too.
bool IsMarker(const std::string& name) {
  return name == "scaled_fp8" || name == kZeroCondMarker || name.ends_with(".scale_input") ||
         name.ends_with(".input_scale") || name.ends_with(".output_scale") || name.ends_with(".inv_freq");
}

}  // namespace

WeightStore::WeightStore(const fs::path& path, Component component) : path_(path), component_(component) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  if (!is_folder && !fs::exists(path, error)) {
    Fail(ErrorKind::kBadInput,
         "there is no {}; a file with the weights of the {}, or their folder, is expected", path.string(),
         NameOf(component));
  }
  if (!is_folder) {
    AddFile(path);
  } else if (const std::string name = ChooseFile(path, ListFolder(path)); name.ends_with(kShardIndexEnding)) {
    OpenShards(path / name);
  } else {
    AddFile(path / name);
  }
  ReadConfig(is_folder);
  CollectTensors();
  TurnChannelsLast();
}

const WeightTensor* WeightStore::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

int64_t WeightStore::Rows(const std::string& name) const {
  const WeightTensor* tensor = Find(name);
  return tensor && !tensor->shape().empty() ? tensor->shape()[0] : 0;
}

int64_t WeightStore::CountModules(const std::string& prefix) const {
  int64_t count = 0;
  for (auto it = tensors_.lower_bound(prefix); it != tensors_.end() && it->first.starts_with(prefix); ++it) {
    constexpr int64_t kMax = 4096;  // a hostile number beyond it leaves its tensors unexpected
    int64_t index = -1;
    const char* const begin = it->first.data() + prefix.size();
    std::from_chars(begin, it->first.data() + it->first.size(), index);
    if (index < kMax) count = std::max(count, index + 1);
  }
  return count;
}

bool WeightStore::HasMarker(std::string_view name) const {
  return std::any_of(files_.begin(), files_.end(), [&](const auto& file) {
    return std::any_of(file->tensors().begin(), file->tensors().end(),
                       [&](const auto& item) { return item.first.ends_with(name); });
  });
}

std::string WeightStore::Metadata(const std::string& key) const {
  for (const auto& file : files_) {
    const auto found = file->metadata().find(key);
    if (found != file->metadata().end()) return found->second;
  }
  return "";
}

double WeightStore::MetadataNumber(const std::string& key, double fallback) const {
  return ParseNumber(Metadata(key)).value_or(fallback);
}

int64_t WeightStore::MetadataCount(const std::string& key, int64_t fallback) const {
  const double value = MetadataNumber(key, static_cast<double>(fallback));
  return value >= 1 && value <= 1e6 ? static_cast<int64_t>(value) : fallback;
}

// Beside a single file may lie the config of something else, which then does not count.
void WeightStore::ReadConfig(bool is_folder) {
  const fs::path path = (is_folder ? path_ : path_.parent_path()) / "config.json";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  config_path_ = path.string();
  config_ = ReadJsonFile(path);
  if (is_folder) return CheckConfigClass(config_, config_path_, component_);
  const auto has = [&](const char* key) { return config_.is_object() && config_.contains(key); };
  const bool ours = component_ == Component::kTransformer
                        ? has("num_attention_heads") && has("axes_dims_rope")
                    : component_ == Component::kTextEncoder   ? has("hidden_size") || has("text_config")
                    : component_ == Component::kVisionEncoder ? has("vision_config")
                                                              : has("z_dim");
  if (!ours) config_ = nullptr;
}

void WeightStore::AddFile(const fs::path& path) {
  files_.push_back(OpenWeightFile(path));
  for (const auto& [name, stored] : files_.back()->tensors()) {
    const auto earlier = std::find_if(files_.begin(), files_.end(), [&name = name](const auto& file) {
      return file->tensors().contains(name);
    });
    if (*earlier == files_.back()) continue;
    Fail(ErrorKind::kBadInput, "tensor {} is in two shards, {} and {}", Quoted(name),
         (*earlier)->path().string(), path.string());
  }
}

// Gives every tensor its name here and puts the parts of quantized ones together.
void WeightStore::CollectTensors() {
  if (files_.size() == 1) RefuseOthers(path_, *files_[0], component_);
  std::map<std::string, StoredIn> named;
  for (const auto& file : files_) {
    for (const auto& [stored_name, stored] : file->tensors()) {
      const std::string name = DiffusersName(component_, stored_name);
      if (name.empty() || IsMarker(name)) continue;
      if (!named.emplace(name, StoredIn{&stored, file.get()}).second) {
        Fail(ErrorKind::kBadInput, "{}: tensor {} is there twice, under two names", path_.string(),
             Quoted(name));
      }
    }
  }
  tensors_ = JoinParts(named);
}

// MLX keeps the channels of a convolution last: [out, kernel…, in] instead of [out, in, kernel…]. Kernels are
// square, so equal last dimensions speak for torch's layout; but 3 input channels and a kernel of 3 look the
// same both ways. Tools save all convolutions alike, so one that tells speaks for all.
void WeightStore::TurnChannelsLast() {
  const auto is_convolution = [](const WeightTensor& tensor) { return tensor.shape().size() >= 4; };
  const bool channels_last = std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& item) {
    const Shape& shape = item.second.shape();
    return is_convolution(item.second) && item.first.ends_with(".weight") &&
           shape[shape.size() - 2] != shape.back();
  });
  if (!channels_last) return;
  for (auto& [name, tensor] : tensors_) {
    if (is_convolution(tensor) && name.ends_with(".weight")) tensor.SetChannelsLast();
  }
}

void WeightStore::OpenShards(const fs::path& index) {
  const std::map<std::string, std::string> shard_of = ReadShardIndex(index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!fs::exists(path_ / shard, error)) missing.push_back(Quoted(shard));
  }
  if (!missing.empty()) {
    Fail(ErrorKind::kBadInput, "{}: {} of {} shards are missing: {}. The download may be incomplete",
         path_.string(), missing.size(), shards.size(), JoinNames(missing));
  }
  std::vector<std::string> problems;
  for (const std::string& shard : shards) {
    try {
      AddFile(path_ / shard);
    } catch (const Error& error) {  // after a broken download the others are worth knowing too
      if (error.kind() != ErrorKind::kBadInput) throw;
      problems.push_back(error.message());
    }
  }
  if (problems.empty()) {
    for (const auto& [tensor, shard] : shard_of) {
      const auto file = std::find_if(files_.begin(), files_.end(), [&shard = shard](const auto& f) {
        return f->path().filename() == shard;
      });
      if (!(*file)->tensors().contains(tensor)) {
        problems.push_back(fmt::format("{} says that tensor {} is in {}, but it is not", index.string(),
                                       Quoted(tensor), Quoted(shard)));
      }
    }
  }
  if (problems.empty()) return;
  std::string message = problems[0];
  for (size_t i = 1; i < std::min(problems.size(), kMaxListedNames); ++i) message += "\n" + problems[i];
  if (problems.size() > kMaxListedNames)
    message += fmt::format("\n… and {} more", problems.size() - kMaxListedNames);
  throw Error(ErrorKind::kBadInput, message);
}

int64_t WeightStore::total_bytes() const {
  int64_t total = 0;
  for (const auto& file : files_) total += static_cast<int64_t>(file->file().bytes().size());
  return total;
}

void WeightStore::ReleasePages() const {
  for (const auto& file : files_) file->file().ReleasePages();
}

void WeightStore::ThrowIfDamaged() const {
  for (const auto& file : files_) file->file().ThrowIfDamaged();
}

}  // namespace qwen_image

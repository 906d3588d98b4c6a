#include "weights/store.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "weights/files.h"
#include "weights/reader.h"
#include "weights/recognize.h"
#include "weights/sets.h"

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
bool HasClass(const Json& config, const ConfigClass* expected) {
  if (!expected || !config.is_object()) return false;
  const auto found = config.find(expected->key);
  if (found == config.end() || !found->is_string()) return false;
  const std::string_view value = found->get_ref<const std::string&>();
  return value == expected->value || (expected->may_go_on && value.starts_with(expected->value));
}

// Null: the family expects nothing.
const ConfigClass* ClassOf(const WeightNames& names, Component component) {
  const auto found =
      std::find_if(names.config_classes.begin(), names.config_classes.end(),
                   [&](const ConfigClass& candidate) { return candidate.component == component; });
  return found == names.config_classes.end() ? nullptr : &*found;
}

void CheckConfigClass(const Json& config, const std::string& where, const WeightNames& names,
                      Component component) {
  const ConfigClass* expected = ClassOf(names, component);
  if (!expected || !config.is_object() || HasClass(config, expected)) return;
  const auto found = config.find(expected->key);
  if (found == config.end() || !found->is_string()) return;
  Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, but the {} of {} is {}; other models are not supported",
       where, expected->key, Quoted(found->get<std::string>()), NameOf(component), names.model,
       expected->value);
}

// A language model without eyes may have all tensors of a text encoder, and other values.
void CheckArchitecture(const WeightFile& file, const WeightNames& names) {
  const auto found = file.metadata().find("general.architecture");
  const std::string_view expected = names.text_encoder_architecture;
  if (expected.empty() || found == file.metadata().end() || found->second == expected) return;
  if (Recognize(file).components.size() > 1) return;  // the word for a whole model
  Fail(ErrorKind::kBadInput,
       "{}: general.architecture is {}, but the text_encoder of {} is {}; other models are not supported",
       file.path().string(), Quoted(found->second), names.model, expected);
}

// The family that a config or the tensors speak for; the first if they say nothing.
const WeightNames& FamilyOf(const std::vector<std::unique_ptr<WeightFile>>& files, const Json& config,
                            Component component) {
  for (const Vocabulary* family : Vocabularies()) {
    if (HasClass(config, ClassOf(*family->weights, component))) return *family->weights;
  }
  const Vocabulary* family = Recognize(files).family;
  return family ? *family->weights : *Vocabularies()[0]->weights;
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
  const std::string name = is_folder ? ChooseFile(path, ListFolder(path)) : "";
  WeightSet set = name.ends_with(kShardIndexEnding) ? OpenShards(path, name)
                                                    : OpenSingleFile(is_folder ? path / name : path, "");
  ThrowErrorsOf(set.findings);
  files_ = std::move(set.files);
  ReadConfig(is_folder);
  CollectTensors(is_folder);
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
  const bool ours =
      is_folder || std::any_of(Vocabularies().begin(), Vocabularies().end(), [&](const auto* family) {
        return family->weights->describes(component_, config_);
      });
  if (!ours) config_ = nullptr;
}

void WeightStore::CollectTensors(bool is_folder) {
  family_ = &FamilyOf(files_, config_, component_);
  if (is_folder) CheckConfigClass(config_, config_path_, *family_, component_);
  if (files_.size() == 1) RefuseOthers(path_, *files_[0], component_);
  if (component_ == Component::kTextEncoder) {
    for (const auto& file : files_) CheckArchitecture(*file, *family_);
  }
  std::vector<std::string_view> names;
  for (const auto& file : files_) {
    const std::vector<std::string_view> more = StoredNames(*file);
    names.insert(names.end(), more.begin(), more.end());
  }
  std::vector<Finding> findings;
  tensors_ = ReadTensors(files_, family_->renamer(component_, names, config_), config_, findings);
  ThrowErrorsOf(findings);
}

// MLX keeps the channels of a convolution last: [out, kernel…, in] instead of [out, in, kernel…]. Kernels are
// square, so equal last dimensions speak for torch's layout; but 3 input channels and a kernel of 3 look the
// same both ways. Tools save all convolutions alike, so one that is not ambiguous decides for all.
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

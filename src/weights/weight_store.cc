#include "weights/weight_store.h"

#include <algorithm>
#include <iterator>

#include "core/fail.h"
#include "files/text.h"
#include "weights/weight_files.h"

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
  if (candidates.empty()) FailWithoutWeights(folder, names);
  if (candidates.size() > 1) {
    for (std::string& name : candidates) name = Printable(name);
    Fail(ErrorKind::kBadInput, "{} holds more than one set of weights, and it is unclear which to use: {}",
         folder.string(), JoinNames(candidates));
  }
  return candidates[0];
}

}  // namespace

WeightStore WeightStore::OpenFolder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    Fail(ErrorKind::kBadInput,
         "{} is not there or is not a folder; the folder of a model's component is expected",
         folder.string());
  }
  WeightStore store;
  store.folder_ = folder;
  const std::string name = ChooseFile(folder, ListFolder(folder));
  if (name.ends_with(kShardIndexEnding)) {
    store.OpenShards(folder / name);
  } else {
    store.AddFile(folder / name);
  }
  return store;
}

void WeightStore::AddFile(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& [name, entry] : files_.back()->tensors()) {
    if (tensors_.emplace(name, &entry).second) continue;
    const auto earlier = std::find_if(files_.begin(), files_.end(), [&name = name](const auto& file) {
      return file->tensors().contains(name);
    });
    Fail(ErrorKind::kBadInput, "tensor {} is in two shards, {} and {}", Quoted(name),
         (*earlier)->path().string(), path.string());
  }
}

void WeightStore::OpenShards(const fs::path& index) {
  const std::map<std::string, std::string> shard_of = ReadShardIndex(index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!fs::exists(folder_ / shard, error)) missing.push_back(Quoted(shard));
  }
  if (!missing.empty()) {
    Fail(ErrorKind::kBadInput, "{}: {} of {} shards are missing: {}. The download may be incomplete",
         folder_.string(), missing.size(), shards.size(), JoinNames(missing));
  }
  std::vector<std::string> problems;
  for (const std::string& shard : shards) {
    try {
      AddFile(folder_ / shard);
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

void WeightStore::RenameKeys(const std::map<std::string, std::string>& prefixes) {
  std::map<std::string, const StoredTensor*> renamed;
  for (const auto& [name, entry] : tensors_) {
    const std::pair<const std::string, std::string>* longest = nullptr;
    for (const auto& prefix : prefixes) {
      if (name.starts_with(prefix.first) && (!longest || prefix.first.size() > longest->first.size())) {
        longest = &prefix;
      }
    }
    const std::string new_name = longest ? longest->second + name.substr(longest->first.size()) : name;
    if (!renamed.emplace(new_name, entry).second) {
      Fail(ErrorKind::kBadInput, "{}: tensor {} is there twice, under its two names", folder_.string(),
           Quoted(new_name));
    }
  }
  tensors_ = std::move(renamed);
}

}  // namespace qwen_image

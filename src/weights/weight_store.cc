#include "weights/weight_store.h"

#include <algorithm>
#include <iterator>

#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = ".safetensors";
constexpr std::string_view kIndex = ".safetensors.index.json";
constexpr size_t kMaxListed = 40;

// "a, b, c", at most kMaxListed of them.
std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kMaxListed) text += fmt::format(" and {} more", names.size() - kMaxListed);
  return text;
}

std::vector<std::string> ListFiles(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  std::vector<std::string> names;
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) Fail(ErrorKind::kBadInput, "cannot read the folder {}: {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> EndingWith(const std::vector<std::string>& names, std::string_view ending) {
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [&](const std::string& name) { return name.ends_with(ending) && !name.starts_with('.'); });
  return found;
}

bool LooksLikeShard(const std::string& name) { return name.find("-of-") != name.npos; }

// Why a folder without a safetensors file to open cannot be used.
[[noreturn]] void FailWithoutWeights(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<std::string> others;
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".ckpt", ".gguf"}) {
    const std::vector<std::string> found = EndingWith(names, ending);
    others.insert(others.end(), found.begin(), found.end());
  }
  for (std::string& name : others) name = Printable(name);
  if (!others.empty()) {
    Fail(ErrorKind::kBadInput,
         "{} holds weights as {} only; safetensors files are needed, other formats are not supported yet",
         folder.string(), Join(others));
  }
  Fail(ErrorKind::kBadInput,
       "{} holds no weights: diffusion_pytorch_model.safetensors or model.safetensors, or their .index.json, "
       "is "
       "expected. The download may be incomplete",
       folder.string());
}

// The name of the file to open: an index before a single file, as diffusers does.
std::string ChooseFile(const fs::path& folder, const std::vector<std::string>& names) {
  const auto is_there = [&](const std::string& name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  std::vector<std::string> candidates;
  for (const std::string stem : {"diffusion_pytorch_model", "model"}) {
    for (const std::string_view ending : {kIndex, kSingle}) {
      const std::string name = stem + std::string(ending);
      if (!is_there(name)) continue;
      candidates.push_back(name);
      break;
    }
  }
  if (candidates.empty()) candidates = EndingWith(names, kIndex);
  if (candidates.empty()) {
    candidates = EndingWith(names, kSingle);
    if (!candidates.empty() && std::all_of(candidates.begin(), candidates.end(), LooksLikeShard)) {
      Fail(ErrorKind::kBadInput,
           "{} holds {} shards but no *{} that names them all; the download may be incomplete",
           folder.string(), candidates.size(), kIndex);
    }
  }
  if (candidates.empty()) FailWithoutWeights(folder, names);
  if (candidates.size() > 1) {
    for (std::string& name : candidates) name = Printable(name);
    Fail(ErrorKind::kBadInput, "{} holds more than one set of weights, and it is unclear which to use: {}",
         folder.string(), Join(candidates));
  }
  return candidates[0];
}

// tensor → shard, with names of shards that cannot lead out of the folder.
std::map<std::string, std::string> ReadIndex(const fs::path& path) {
  const Json index = ReadJsonFile(path);
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_object() || found->empty()) {
    Fail(ErrorKind::kBadInput, "{}: no \"weight_map\" that says in which shard each tensor is",
         path.string());
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, value] : found->items()) {
    const std::string shard = value.is_string() ? value.get<std::string>() : "";
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != shard.npos ||
        shard.find('\\') != shard.npos || shard.find('\0') != shard.npos) {
      Fail(ErrorKind::kBadInput,
           "{}: tensor {} is said to be in {}; the plain name of a file in this folder is expected",
           path.string(), Quoted(tensor), value.is_string() ? Quoted(shard) : value.type_name());
    }
    shards[tensor] = shard;
  }
  return shards;
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
  const std::string name = ChooseFile(folder, ListFiles(folder));
  if (name.ends_with(kIndex)) {
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
  const std::map<std::string, std::string> shard_of = ReadIndex(index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!fs::exists(folder_ / shard, error)) missing.push_back(Quoted(shard));
  }
  if (!missing.empty()) {
    Fail(ErrorKind::kBadInput, "{}: {} of {} shards are missing: {}. The download may be incomplete",
         folder_.string(), missing.size(), shards.size(), Join(missing));
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
  for (size_t i = 1; i < std::min(problems.size(), kMaxListed); ++i) message += "\n" + problems[i];
  if (problems.size() > kMaxListed) message += fmt::format("\n… and {} more", problems.size() - kMaxListed);
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
  std::map<std::string, const SafetensorsEntry*> renamed;
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

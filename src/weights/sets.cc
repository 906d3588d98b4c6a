#include "weights/sets.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/fail.h"
#include "families/component.h"
#include "files/folder.h"
#include "files/text.h"
#include "weights/files.h"
#include "weights/fused.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// Does `read`; a file that cannot be read becomes a finding, so that the others can still be looked at.
template <typename Read>
bool ReadOrNote(const fs::path& path, WeightSet& set, const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    set.findings.push_back({.severity = Severity::kBroken,
                            .kind = "unreadable_file",
                            .subject = Printable(path.filename().string()),
                            .text = error.message(),
                            .tensors = {},
                            .errors = {error.message()}});
    return false;
  }
}

bool AddFile(const fs::path& path, WeightSet& set) {
  return ReadOrNote(path, set, [&] { set.files.push_back(OpenWeightFile(path)); });
}

std::string Listed(std::vector<std::string> names) {
  std::transform(names.begin(), names.end(), names.begin(), [](const auto& name) { return Printable(name); });
  return JoinNames(names);
}

// A tensor that is in two files is a finding.
void FindTensorsInTwo(WeightSet& set) {
  std::map<std::string_view, const WeightFile*> seen;
  for (const auto& file : set.files) {
    for (const auto& [name, entry] : file->tensors()) {
      const auto [earlier, is_new] = seen.emplace(name, file.get());
      if (is_new) continue;
      const fs::path &first = earlier->second->path(), &second = file->path();
      set.findings.push_back(
          {.severity = Severity::kBroken,
           .kind = "tensor_twice",
           .subject = Printable(name),
           .text = fmt::format("is in two files, {} and {}; which one counts is chance",
                               Printable(first.filename().string()), Printable(second.filename().string())),
           .tensors = {name},
           .errors = {fmt::format("tensor {} is in two shards, {} and {}", Quoted(name), first.string(),
                                  second.string())}});
    }
  }
}

// The index and the shards must tell the same.
void CheckIndexedTensors(const fs::path& index, const std::map<std::string, std::string>& shard_of,
                         WeightSet& set) {
  std::map<std::string, const WeightFile*> opened;
  for (const auto& file : set.files) opened.emplace(file->path().filename().string(), file.get());
  Finding absent{.severity = Severity::kBroken,
                 .kind = "absent_tensors",
                 .subject = "",
                 .text =
                     "not in the shards that the index names for them; the shards may be of another "
                     "version of the model",
                 .tensors = {}};
  for (const auto& [tensor, shard] : shard_of) {
    const auto file = opened.find(shard);
    if (file == opened.end() || file->second->tensors().contains(tensor)) continue;
    absent.tensors.push_back(tensor);
    absent.errors.push_back(fmt::format("{} says that tensor {} is in {}, but it is not", index.string(),
                                        Quoted(tensor), Quoted(shard)));
  }
  std::set<std::string> unnamed;
  for (const auto& file : set.files) {
    for (const auto& [name, entry] : file->tensors()) {
      if (!shard_of.contains(name)) unnamed.insert(name);
    }
  }
  absent.subject = Listed(absent.tensors);
  if (!absent.tensors.empty()) set.findings.push_back(std::move(absent));
  if (unnamed.empty()) return;
  const std::vector<std::string> names(unnamed.begin(), unnamed.end());
  set.findings.push_back({.severity = Severity::kWarning,
                          .kind = "not_in_index",
                          .subject = Listed(names),
                          .text = "in a shard, but not named by the index: loaders that follow the index "
                                  "leave it out",
                          .tensors = names});
}

void NoteAbsentShards(const std::string& index, const std::set<std::string>& shards,
                      const std::vector<std::string>& missing, WeightSet& set) {
  if (missing.empty()) return;
  std::vector<std::string> quoted;
  for (const std::string& shard : missing) quoted.push_back(Quoted(shard));
  set.findings.push_back(
      {.severity = Severity::kBroken,
       .kind = "absent_shards",
       .subject = Listed(missing),
       .text = fmt::format("{} of {} shards that {} names are not there; the download may be incomplete",
                           missing.size(), shards.size(), Printable(index)),
       .tensors = {},
       .errors = {fmt::format("{}: {} of {} shards are missing: {}. The download may be incomplete",
                              set.path.string(), missing.size(), shards.size(), JoinNames(quoted))}});
}

// Shards whose index is not there: all of them make one set.
WeightSet OpenLooseShards(const fs::path& folder, const std::vector<std::string>& shards) {
  WeightSet set{.name = folder.filename().string(), .path = folder};
  set.findings.push_back(
      {.severity = Severity::kBroken,
       .kind = "absent_index",
       .subject = fmt::format("*{}", kShardIndexEnding),
       .text = fmt::format("{} shards, but no index that names them all; the download may be incomplete",
                           shards.size()),
       .tensors = {}});
  for (const std::string& shard : shards) AddFile(folder / shard, set);
  FindTensorsInTwo(set);
  DivideFused(set);
  return set;
}

// What lies beside the shards of an index and looks like one of them.
void NoteLeftOverShards(const std::string& index, const std::vector<std::string>& names, WeightSet& set) {
  const std::string stem = index.substr(0, index.size() - kShardIndexEnding.size());
  for (const std::string& name : NamesEndingWith(names, kWeightsEnding)) {
    const bool named = std::any_of(set.files.begin(), set.files.end(),
                                   [&](const auto& file) { return file->path().filename() == name; });
    if (named || !LooksLikeShard(name) || !name.starts_with(stem)) continue;
    const bool unreadable =
        std::any_of(set.findings.begin(), set.findings.end(), [&](const Finding& finding) {
          return finding.kind == "unreadable_file" && finding.subject == Printable(name);
        });
    if (unreadable) continue;
    set.findings.push_back({.severity = Severity::kWarning,
                            .kind = "shard_not_in_index",
                            .subject = Printable(name),
                            .text = fmt::format("looks like a shard, but {} does not name it: left over "
                                                "from another version?",
                                                Printable(index)),
                            .tensors = {}});
  }
}

// The sets of weights in one folder; none if it holds no such file.
std::vector<WeightSet> OpenFolder(const fs::path& folder) {
  const std::vector<std::string> names = ListFolder(folder);
  std::vector<std::string> files = NamesEndingWith(names, kWeightsEnding);
  for (std::string& name : NamesEndingWith(names, kGgufEnding)) files.push_back(std::move(name));
  std::vector<WeightSet> found;
  for (const std::string& index : NamesEndingWith(names, kShardIndexEnding)) {
    found.push_back(OpenShards(folder, index));
    NoteLeftOverShards(index, names, found.back());
    const std::string stem = index.substr(0, index.size() - kShardIndexEnding.size());
    std::erase_if(files, [&](const std::string& name) {
      return (LooksLikeShard(name) && name.starts_with(stem)) ||
             std::any_of(found.back().files.begin(), found.back().files.end(),
                         [&](const auto& file) { return file->path().filename() == name; });
    });
  }
  std::vector<std::string> loose;
  std::copy_if(files.begin(), files.end(), std::back_inserter(loose), LooksLikeShard);
  if (!loose.empty()) found.push_back(OpenLooseShards(folder, loose));
  std::erase_if(files, LooksLikeShard);
  for (const std::string& file : files) {
    const bool alone = found.empty() && files.size() == 1;
    found.push_back(
        OpenSingleFile(folder / file, alone ? folder.filename().string() : fs::path(file).stem().string()));
    if (alone) found.back().path = folder;
  }
  const fs::path config = folder / "config.json";
  for (WeightSet& set : found) {
    if (!Exists(config)) break;
    ReadOrNote(config, set, [&] { set.config = ReadJsonFile(config); });
  }
  return found;
}

// The folders that model_index.json names, or without one every folder that holds weights.
std::vector<WeightSet> OpenModel(const fs::path& root) {
  std::vector<WeightSet> found;
  const bool has_index = Exists(root / "model_index.json");
  for (const std::string& name : ListFolder(root)) {
    if (name.starts_with('.') || !IsFolder(root / name)) continue;
    for (WeightSet& set : OpenFolder(root / name)) found.push_back(std::move(set));
  }
  if (!has_index) return found;
  const Json index = ReadJsonFile(root / "model_index.json", size_t{1} << 20);
  for (const Component component : {Component::kTransformer, Component::kTextEncoder, Component::kVae}) {
    const std::string name(NameOf(component));
    const bool named = index.is_object() && index.contains(name);
    const bool there = std::any_of(found.begin(), found.end(), [&](const WeightSet& set) {
      return set.path == root / name || set.path.parent_path() == root / name;
    });
    if (!named || there) continue;
    found.push_back({.name = name, .path = root / name});
    found.back().findings.push_back({.severity = Severity::kBroken,
                                     .kind = "absent_component",
                                     .subject = name,
                                     .text =
                                         "named by model_index.json, but its folder is not there or holds "
                                         "no weights; the download may be incomplete",
                                     .tensors = {}});
  }
  return found;
}

}  // namespace

void ThrowErrorsOf(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.insert(lines.end(), finding.errors.begin(), finding.errors.end());
  }
  if (lines.empty()) return;
  std::string message = lines[0];
  for (size_t i = 1; i < std::min(lines.size(), kMaxListedNames); ++i) message += "\n" + lines[i];
  if (lines.size() > kMaxListedNames)
    message += fmt::format("\n… and {} more", lines.size() - kMaxListedNames);
  throw Error(ErrorKind::kBadInput, message);
}

WeightSet OpenShards(const fs::path& folder, const std::string& index) {
  WeightSet set{.name = folder.filename().string(), .path = folder};
  std::map<std::string, std::string> shard_of;
  ReadOrNote(folder / index, set, [&] { shard_of = ReadShardIndex(folder / index); });
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!Exists(folder / shard)) {
      missing.push_back(shard);
    } else {
      AddFile(folder / shard, set);
    }
  }
  NoteAbsentShards(index, shards, missing, set);
  FindTensorsInTwo(set);
  CheckIndexedTensors(folder / index, shard_of, set);
  DivideFused(set);
  return set;
}

WeightSet OpenSingleFile(const fs::path& file, std::string name) {
  WeightSet set{.name = std::move(name),
                .path = file,
                .config = nullptr,
                .is_shard = LooksLikeShard(file.filename().string())};
  AddFile(file, set);
  DivideFused(set);
  return set;
}

std::vector<WeightSet> OpenAllSets(const fs::path& given) {
  const fs::path path = given.has_filename() || !given.has_parent_path() ? given : given.parent_path();
  if (!Exists(path)) {
    Fail(ErrorKind::kBadInput,
         "there is no {}; a safetensors or GGUF file, a folder with some or a model folder is expected",
         path.string());
  }
  std::vector<WeightSet> found;
  const fs::path folder = path.filename() == "." || path.filename() == ".." ? fs::canonical(path) : path;
  if (!IsFolder(path)) {
    found.push_back(OpenSingleFile(path, path.stem().string()));
  } else {
    if (!Exists(folder / "model_index.json")) found = OpenFolder(folder);
    if (found.empty()) found = OpenModel(folder);
    if (found.empty()) FailWithoutWeights(folder, ListFolder(folder));
  }
  const bool readable =
      std::any_of(found.begin(), found.end(), [](const auto& set) { return !set.files.empty(); });
  if (!readable) throw Error(ErrorKind::kBadInput, found[0].findings.at(0).text);
  return found;
}

}  // namespace qwen_image

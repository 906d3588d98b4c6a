#include "weights/inspect/open_weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/fail.h"
#include "files/folder.h"
#include "files/text.h"
#include "weights/files.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// Does `read`; a file that cannot be read becomes a finding, so that the others can still be looked at.
template <typename Read>
bool ReadOrNote(const fs::path& path, InspectedComponent& component, const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    component.findings.push_back({.severity = Severity::kBroken,
                                  .kind = "unreadable_file",
                                  .subject = Printable(path.filename().string()),
                                  .text = error.message()});
    return false;
  }
}

bool AddFile(const fs::path& path, InspectedComponent& component) {
  return ReadOrNote(path, component, [&] { component.files.push_back(OpenWeightFile(path)); });
}

// Lists the tensors of all files; one that is in two is a finding.
void CollectTensors(InspectedComponent& component) {
  std::map<std::string, InspectedTensor> tensors;
  for (const auto& file : component.files) {
    for (const auto& [name, entry] : file->tensors()) {
      const auto [at, added] =
          tensors.try_emplace(name, InspectedTensor{.name = name,
                                                    .file = file.get(),
                                                    .stored = &entry,
                                                    .shape = entry.shape,
                                                    .format = std::string(NameOf(entry.dtype))});
      if (added) continue;
      component.findings.push_back(
          {.severity = Severity::kBroken,
           .kind = "tensor_twice",
           .subject = Printable(name),
           .text = fmt::format("is in two files, {} and {}; which one counts is chance",
                               Printable(at->second.file->path().filename().string()),
                               Printable(file->path().filename().string())),
           .tensors = {name}});
    }
  }
  for (auto& [name, tensor] : tensors) component.tensors.push_back(std::move(tensor));
}

void CheckIndexedTensors(const std::map<std::string, std::string>& shard_of,
                         const std::set<std::string>& readable, InspectedComponent& component) {
  std::vector<std::string> absent, unnamed;
  for (const auto& [tensor, shard] : shard_of) {
    if (readable.contains(shard) && !component.Find(tensor)) absent.push_back(tensor);
  }
  for (const InspectedTensor& tensor : component.tensors) {
    if (!shard_of.contains(tensor.name)) unnamed.push_back(tensor.name);
  }
  const auto listed = [](std::vector<std::string> names) {
    std::transform(names.begin(), names.end(), names.begin(),
                   [](const auto& name) { return Printable(name); });
    return JoinNames(names);
  };
  if (!absent.empty()) {
    component.findings.push_back({.severity = Severity::kBroken,
                                  .kind = "absent_tensors",
                                  .subject = listed(absent),
                                  .text = "named by the index, but in no shard; the shards may be of another "
                                          "version of the model",
                                  .tensors = absent});
  }
  if (!unnamed.empty()) {
    component.findings.push_back({.severity = Severity::kWarning,
                                  .kind = "not_in_index",
                                  .subject = listed(unnamed),
                                  .text = "in a shard, but not named by the index: loaders that follow the "
                                          "index leave it out",
                                  .tensors = unnamed});
  }
}

InspectedComponent OpenShards(const fs::path& folder, const std::string& index,
                              const std::vector<std::string>& names) {
  InspectedComponent component{.name = folder.filename().string(), .path = folder};
  std::map<std::string, std::string> shard_of;
  ReadOrNote(folder / index, component, [&] { shard_of = ReadShardIndex(folder / index); });
  std::set<std::string> shards, readable;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!Exists(folder / shard)) {
      missing.push_back(Printable(shard));
    } else if (AddFile(folder / shard, component)) {
      readable.insert(shard);
    }
  }
  if (!missing.empty()) {
    component.findings.push_back(
        {.severity = Severity::kBroken,
         .kind = "absent_shards",
         .subject = JoinNames(missing),
         .text = fmt::format("{} of {} shards that {} names are not there; the download may be incomplete",
                             missing.size(), shards.size(), Printable(index))});
  }
  CollectTensors(component);
  CheckIndexedTensors(shard_of, readable, component);
  const std::string stem = index.substr(0, index.size() - kShardIndexEnding.size());
  for (const std::string& name : NamesEndingWith(names, kWeightsEnding)) {
    if (shards.contains(name) || !LooksLikeShard(name) || !name.starts_with(stem)) continue;
    component.findings.push_back(
        {.severity = Severity::kWarning,
         .kind = "shard_not_in_index",
         .subject = Printable(name),
         .text = fmt::format("looks like a shard, but {} does not name it: left over "
                             "from another version?",
                             Printable(index))});
  }
  return component;
}

InspectedComponent OpenSingle(const fs::path& file, std::string name) {
  InspectedComponent component{
      .name = std::move(name), .path = file, .is_shard = LooksLikeShard(file.filename().string())};
  AddFile(file, component);
  CollectTensors(component);
  return component;
}

// Shards whose index is not there: all of them make one component.
InspectedComponent OpenLooseShards(const fs::path& folder, const std::vector<std::string>& shards) {
  InspectedComponent component{.name = folder.filename().string(), .path = folder};
  component.findings.push_back(
      {.severity = Severity::kBroken,
       .kind = "absent_index",
       .subject = fmt::format("*{}", kShardIndexEnding),
       .text = fmt::format("{} shards, but no index that names them all; the download may be incomplete",
                           shards.size())});
  for (const std::string& shard : shards) AddFile(folder / shard, component);
  CollectTensors(component);
  return component;
}

// The sets of weights in one folder; none if it holds no such file.
std::vector<InspectedComponent> OpenFolder(const fs::path& folder) {
  const std::vector<std::string> names = ListFolder(folder);
  std::vector<std::string> files = NamesEndingWith(names, kWeightsEnding);
  for (std::string& name : NamesEndingWith(names, kGgufEnding)) files.push_back(std::move(name));
  std::vector<InspectedComponent> found;
  for (const std::string& index : NamesEndingWith(names, kShardIndexEnding)) {
    found.push_back(OpenShards(folder, index, names));
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
        OpenSingle(folder / file, alone ? folder.filename().string() : fs::path(file).stem().string()));
    if (alone) found.back().path = folder;
  }
  const fs::path config = folder / "config.json";
  for (InspectedComponent& component : found) {
    if (!Exists(config)) break;
    ReadOrNote(config, component, [&] { component.config = ReadJsonFile(config); });
  }
  return found;
}

// The folders that model_index.json names, or without one every folder that holds weights.
std::vector<InspectedComponent> OpenModel(const fs::path& root) {
  std::vector<InspectedComponent> found;
  const bool has_index = Exists(root / "model_index.json");
  for (const std::string& name : ListFolder(root)) {
    if (name.starts_with('.') || !IsFolder(root / name)) continue;
    for (InspectedComponent& component : OpenFolder(root / name)) found.push_back(std::move(component));
  }
  if (!has_index) return found;
  const Json index = ReadJsonFile(root / "model_index.json", size_t{1} << 20);
  for (const char* name : {"transformer", "text_encoder", "vae"}) {
    const bool named = index.is_object() && index.contains(name);
    const bool there = std::any_of(found.begin(), found.end(), [&](const InspectedComponent& component) {
      return component.path == root / name || component.path.parent_path() == root / name;
    });
    if (!named || there) continue;
    found.push_back({.name = name, .path = root / name});
    found.back().findings.push_back({.severity = Severity::kBroken,
                                     .kind = "absent_component",
                                     .subject = name,
                                     .text =
                                         "named by model_index.json, but its folder is not there or holds "
                                         "no weights; the download may be incomplete"});
  }
  return found;
}

}  // namespace

std::vector<InspectedComponent> OpenWeights(const fs::path& given) {
  const fs::path path = given.has_filename() || !given.has_parent_path() ? given : given.parent_path();
  if (!Exists(path)) {
    Fail(ErrorKind::kBadInput,
         "there is no {}; a safetensors or GGUF file, a folder with some or a model folder is expected",
         path.string());
  }
  std::vector<InspectedComponent> found;
  const fs::path folder = path.filename() == "." || path.filename() == ".." ? fs::canonical(path) : path;
  if (!IsFolder(path)) {
    found.push_back(OpenSingle(path, path.stem().string()));
  } else {
    if (!Exists(folder / "model_index.json")) found = OpenFolder(folder);
    if (found.empty()) found = OpenModel(folder);
    if (found.empty()) FailWithoutWeights(folder, ListFolder(folder));
  }
  const bool readable =
      std::any_of(found.begin(), found.end(), [](const auto& c) { return !c.files.empty(); });
  if (!readable) throw Error(ErrorKind::kBadInput, found[0].findings.at(0).text);
  return found;
}

}  // namespace qwen_image

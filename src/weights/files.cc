#include "weights/files.h"

#include <algorithm>
#include <iterator>

#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {

namespace fs = std::filesystem;

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxListedNames); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kMaxListedNames) text += fmt::format(" and {} more", names.size() - kMaxListedNames);
  return text;
}

std::vector<std::string> ListFolder(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  std::vector<std::string> names;
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) Fail(ErrorKind::kBadInput, "cannot read the folder {}: {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> NamesEndingWith(const std::vector<std::string>& names, std::string_view ending) {
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [&](const std::string& name) { return name.ends_with(ending) && !name.starts_with('.'); });
  return found;
}

bool LooksLikeShard(const std::string& name) { return name.find("-of-") != name.npos; }

void FailWithoutWeights(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<std::string> others;
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".ckpt"}) {
    const std::vector<std::string> found = NamesEndingWith(names, ending);
    others.insert(others.end(), found.begin(), found.end());
  }
  for (std::string& name : others) name = Printable(name);
  if (!others.empty()) {
    Fail(ErrorKind::kBadInput, "{} holds weights as {} only; safetensors or GGUF files are needed",
         folder.string(), JoinNames(others));
  }
  Fail(ErrorKind::kBadInput,
       "{} holds no weights: diffusion_pytorch_model.safetensors or model.safetensors, or their .index.json, "
       "is "
       "expected. The download may be incomplete",
       folder.string());
}

std::map<std::string, std::string> ReadShardIndex(const fs::path& path) {
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

}  // namespace qwen_image

// The files of a folder that may hold weights, and the index of a model in shards.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

constexpr std::string_view kWeightsEnding = ".safetensors";
constexpr std::string_view kGgufEnding = ".gguf";
constexpr std::string_view kShardIndexEnding = ".safetensors.index.json";
constexpr size_t kMaxListedNames = 40;  // in a message

// "a, b, c", at most kMaxListedNames of them.
std::string JoinNames(const std::vector<std::string>& names);

std::vector<std::string> ListFolder(const std::filesystem::path& folder);  // sorted; throws Error kBadInput
// Without hidden files, which other systems leave beside the real ones.
std::vector<std::string> NamesEndingWith(const std::vector<std::string>& names, std::string_view ending);
bool LooksLikeShard(const std::string& name);  // model-00001-of-00009.safetensors

// Says why a folder without a safetensors file cannot be used. Throws Error kBadInput.
[[noreturn]] void FailWithoutWeights(const std::filesystem::path& folder,
                                     const std::vector<std::string>& names);

// tensor → shard, with names of shards that cannot lead out of the folder. Throws Error kBadInput.
std::map<std::string, std::string> ReadShardIndex(const std::filesystem::path& path);

}  // namespace qwen_image

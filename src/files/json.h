// JSON files of a model folder, read strictly: UTF-8, no duplicate keys, bounded depth and size.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace qwen_image {

using Json = nlohmann::json;

// `where` names the source in error messages. Throws Error kBadInput.
Json ParseJson(std::string_view text, std::string_view where);
Json ReadJsonFile(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

}  // namespace qwen_image

// JSON files of a model folder, read strictly: UTF-8, no duplicate keys, bounded depth and size.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace qwen_image {

using Json = nlohmann::json;

// A value of two bytes ("1,") costs 16 bytes and more once parsed, a key of six bytes 100, so the size of the
// text alone does not bound the memory. The largest real file, a tokenizer.json of 150,000 words, has about a
// million values.
inline constexpr size_t kMaxJsonValues = 4'000'000;

// `where` names the source in error messages. Throws Error kBadInput.
Json ParseJson(std::string_view text, std::string_view where, size_t max_values = kMaxJsonValues);
Json ReadJsonFile(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

}  // namespace qwen_image

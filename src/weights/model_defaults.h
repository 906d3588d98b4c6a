// What a model wants to be run with, from the optional file qwen_image.json in its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace qwen_image {

struct ModelDefaults {
  std::optional<std::string> name;
  std::optional<int64_t> width;
  std::optional<int64_t> height;
  std::optional<int64_t> steps;
  std::optional<double> cfg;
  std::optional<std::string> negative_prompt;
};

ModelDefaults ReadModelDefaults(const std::filesystem::path& root);  // throws Error kBadInput

}  // namespace qwen_image

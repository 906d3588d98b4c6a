// What a model wants to be run with, from the optional file qwen_image.json in its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen_image {

struct ModelDefaults {
  std::optional<std::string> name;
  std::optional<int64_t> width;
  std::optional<int64_t> height;
  std::optional<int64_t> steps;
  std::optional<double> cfg;
  std::optional<std::string> negative_prompt;
  // What the model can do ("qwen-image", "edit", "edit-2509", "edit-2511"), for one that serves several
  // pipelines: a model_index.json can name only one.
  std::vector<std::string> pipelines;
  // Areas in pixels that an edit's pictures are brought to: for the VAE, and for the vision encoder.
  std::optional<int64_t> vae_area, condition_area;
};

ModelDefaults ReadModelDefaults(const std::filesystem::path& root);  // throws Error kBadInput

}  // namespace qwen_image

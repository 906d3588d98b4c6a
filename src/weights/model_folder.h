// A model folder as diffusers writes it: model_index.json and one folder per component.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "files/json.h"

namespace qwen_image {

struct ModelFolder {
  std::filesystem::path root;
  std::string pipeline_class;  // "QwenImagePipeline", "QwenImageEditPlusPipeline", …
  Json model_index;
  std::filesystem::path transformer;
  std::filesystem::path text_encoder;
  std::filesystem::path vae;
  std::filesystem::path tokenizer;
  std::filesystem::path scheduler;
};

// Throws Error kBadInput that says what `root` is instead, or lists every component that is missing.
ModelFolder OpenModelFolder(const std::filesystem::path& root);

// What a model wants to be run with, from the optional file qwen_image.json in its folder.
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

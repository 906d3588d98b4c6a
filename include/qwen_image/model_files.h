// What a user names when asking for a model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qwen_image {

struct LoraFile {
  std::filesystem::path path;
  double scale = 1.0;
};

// A model is a folder, or parts from several places, or a folder of which some parts are replaced. Parts are
// files (safetensors, GGUF) or folders. What is empty was not named.
struct ModelFiles {
  ModelFiles() = default;
  ModelFiles(std::filesystem::path folder)
      : model(std::move(folder)) {}                  // NOLINT: a folder is the usual case
  ModelFiles(const char* folder) : model(folder) {}  // NOLINT

  std::filesystem::path model;
  std::filesystem::path transformer, text_encoder, vae, tokenizer;
  std::string variant;  // "qwen-image", "edit", "edit-2509", "edit-2511": where nothing in the files tells
  std::vector<LoraFile> loras;
};

}  // namespace qwen_image

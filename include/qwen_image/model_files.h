// What a user names when asking for a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace qwen_image {

struct LoraFile {
  std::filesystem::path path;
  double scale = 1.0;
};

// What a LoRA did to a model.
struct AppliedLora {
  std::string name;  // of its file
  double scale = 1.0;
  int64_t layers = 0;  // of the transformer that it changes …
  int64_t total = 0;   // … of those it has; where they are not the same, the model is not loaded
  int64_t min_rank = 0, max_rank = 0;
  int64_t lightning_steps = 0;  // 4 or 8: a Lightning LoRA, which lets so few steps do; else 0
};

// A model is a folder, or parts from several places, or a folder of which some parts are replaced. Parts are
// files (safetensors, GGUF) or folders. What is empty was not named.
struct ModelFiles {
  ModelFiles() = default;
  // NOLINTBEGIN(google-explicit-constructor): a folder is the usual case, in whichever type its name is held
  ModelFiles(std::filesystem::path folder) : model(std::move(folder)) {}
  ModelFiles(const std::string& folder) : model(folder) {}
  ModelFiles(const char* folder) : model(folder ? folder : "") {}
  // NOLINTEND(google-explicit-constructor)

  std::filesystem::path model;
  std::filesystem::path transformer, text_encoder, vae, tokenizer;
  std::filesystem::path vision_encoder;  // for edits, where the text encoder's files hold none
  std::string variant;  // what Pipeline::variant() is to be, where nothing in the files says it
  std::vector<LoraFile> loras;
};

}  // namespace qwen_image

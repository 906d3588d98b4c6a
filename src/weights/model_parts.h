// Where the parts of a model are: a folder as diffusers, mflux or ComfyUI lays it out, single files, or a
// mix.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qwen_image/model_files.h"

namespace qwen_image {

struct ModelParts {
  std::filesystem::path root;  // the folder; without one the transformer
  std::string pipeline_class;  // "QwenImageEditPlusPipeline", …; empty where no model_index.json tells
  std::filesystem::path transformer, text_encoder, vae;  // a file or a folder
  std::filesystem::path vision_encoder;                  // the same; the text encoder unless named
  std::filesystem::path tokenizer;                       // a folder, or the text encoder's GGUF file
  std::filesystem::path scheduler;                       // a folder; empty: the official settings
};

// Throws Error kBadInput that says what a path is instead, or lists every part that is missing.
ModelParts FindModelParts(const ModelFiles& files);

// The same, but parts may be missing: their paths are empty.
ModelParts LocateModelParts(const ModelFiles& files);
// The names of parts that are missing, and the options that name them (the scheduler has none).
struct MissingPart {
  std::string name, option;
};
std::vector<MissingPart> MissingParts(const ModelParts& parts);

}  // namespace qwen_image

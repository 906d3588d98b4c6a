// Where the parts of a model are: a folder as diffusers, mflux or ComfyUI lays it out, single files, or a
// mix.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qwen_image/model_files.h"
#include "weights/component.h"

namespace qwen_image {

struct ModelParts {
  std::filesystem::path root;  // the folder; without one the transformer
  std::string pipeline_class;  // "QwenImageEditPlusPipeline", …; empty where no model_index.json tells
  std::filesystem::path transformer, text_encoder, vae;  // a file or a folder
  std::filesystem::path tokenizer;                       // a folder, or the text encoder's GGUF file
  std::filesystem::path scheduler;                       // a folder; empty: the official settings
};

// Throws Error kBadInput that says what a path is instead, or lists every part that is missing. If `only` is
// not empty, nothing but these components needs to be there.
ModelParts FindModelParts(const ModelFiles& files, const std::vector<Component>& only = {});

}  // namespace qwen_image

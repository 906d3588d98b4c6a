// What a file of weights is, told by its tensors.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "files/weight_file.h"
#include "weights/component.h"

namespace qwen_image {

struct RecognizedFile {
  std::vector<Component> components;  // that it holds; a checkpoint holds several
  bool lora = false;
  std::string what;  // for people: "the transformer of a Qwen-Image model", "a LoRA", "the weights of Flux"
};

RecognizedFile Recognize(const WeightFile& file);
RecognizedFile RecognizeFile(const std::filesystem::path& path);  // throws Error kBadInput if unreadable

bool IsLoraTensor(const std::string& name);

// A GGUF file of a text encoder brings its tokenizer along.
bool HasTokenizer(const std::filesystem::path& path);

}  // namespace qwen_image

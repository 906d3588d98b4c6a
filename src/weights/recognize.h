// Recognizes what a file of weights is by its tensors.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/weight_file.h"

namespace qwen_image {

struct RecognizedFile {
  const Vocabulary* family = nullptr;  // that the components, or the vision tower, belong to
  std::vector<Component> components;   // that it holds; a checkpoint holds several
  bool lora = false;
  bool vision_projector = false;  // llama.cpp's mmproj file
  std::string other_model;        // "Flux 2", …: not one that runs here
  std::string what;               // for people: "the transformer of a Qwen-Image model", "a LoRA; …", …

  bool known() const { return !components.empty() || lora || vision_projector || !other_model.empty(); }
};

// Asks every family, the last one first; the first that knows the file's tensors has it.
RecognizedFile Recognize(const WeightFile& file);
// What several files are together: the result for the recognized file whose family comes last in the table.
// Another shard may hold only tensors that several families have.
RecognizedFile Recognize(std::span<const std::unique_ptr<WeightFile>> files);
// Whether a tensor is named as the component's are: the file may be damaged or incomplete, but is one of it.
bool HasNamesOf(const WeightFile& file, Component component);
RecognizedFile RecognizeFile(const std::filesystem::path& path);  // throws Error kBadInput if unreadable

// The model that has a tensor or module of this name and is none that runs here; empty if none is known.
std::string_view OtherModelWith(std::string_view name);

// Why a class of pipelines that a model_index.json names does not run here; empty if it does.
std::string_view WhyRefused(std::string_view pipeline_class);

std::vector<std::string_view> StoredNames(const WeightFile& file);

bool IsLoraTensor(const std::string& name);

// A GGUF file of a text encoder brings its tokenizer along.
bool HasTokenizer(const std::filesystem::path& path);

}  // namespace qwen_image

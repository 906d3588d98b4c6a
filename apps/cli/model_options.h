// Which model: the options that name one, shared by all commands that load one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "command.h"
#include "qwen_image/model_files.h"

namespace qwen_image::cli {

OptionList ModelOptionList(ModelFiles& files);

// What was named: a path, OWNER/NAME of a downloaded model, or a short name (named_model.h); if no part of a
// model was, $QWEN_IMAGE_MODEL or the embedded model beside the program. Throws Error kBadInput if there is
// none. Which of several downloaded models a short name stands for is said on stderr unless `quiet`.
ModelFiles FindModel(ModelFiles named, bool quiet = true);

// The same for commands that look into one file or folder: of a short name, the folder or the transformer.
std::filesystem::path FindWeights(const std::filesystem::path& named);

// Settings that the short name of a model stands for; none for a model that is named otherwise, or whose
// transformer is another.
struct NamedDefaults {
  std::optional<int64_t> steps;
  std::optional<double> cfg;
};
NamedDefaults DefaultsOfName(const ModelFiles& named);

// The options that name these files, for a command to be typed again.
std::string ModelArguments(const ModelFiles& files);

}  // namespace qwen_image::cli

// Which model: the options that name one, shared by all commands that load one.
#pragma once

#include <string>

#include "command.h"
#include "qwen_image/model_files.h"

namespace qwen_image::cli {

OptionList ModelOptionList(ModelFiles& files);

// What was named; if no part of a model was, $QWEN_IMAGE_MODEL or the embedded model beside the program.
// Throws Error kBadInput if there is none.
ModelFiles FindModel(ModelFiles named);

// The options that name these files, for a command to be typed again.
std::string ModelArguments(const ModelFiles& files);

}  // namespace qwen_image::cli

// Settings as Python has them: the text of the signature that takes them.
#pragma once

#include <string>

#include "options/field.h"

namespace qwen_image::options {

// The parameters of Pipeline.generate, one a line, without progress and preview.
std::string PythonParameters();

}  // namespace qwen_image::options

// Settings as Python has them: what the module checks, and the text of its signature and stubs.
#pragma once

#include <string>

#include "options/field.h"

namespace qwen_image::options {

// The function of python/qwen_image/_arguments.py that checks a value of this type; with a "?" behind it if
// None stands for the default.
std::string PythonKindOf(const Field& field);

// The parameters of Pipeline.generate, one a line, without progress and preview.
std::string PythonParameters();
// The members of the class Request in _core.pyi.
std::string PythonStubs();

}  // namespace qwen_image::options

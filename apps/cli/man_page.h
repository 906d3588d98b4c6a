// The manual page, made from the declarations of the commands.
#pragma once

#include <string>

#include "command_line.h"

namespace qwen_image::cli {

// As roff, with the macros of man(7).
std::string ManPage(const Program& program, const std::string& version);

}  // namespace qwen_image::cli

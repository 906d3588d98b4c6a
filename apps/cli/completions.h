// What shells suggest after Tab, made from the declarations of the commands.
#pragma once

#include <string>

#include "command_line.h"

namespace qwen_image::cli {

// Scripts: bash and fish read theirs with `source`; zsh does too, or finds it as _qwen-image in $fpath.
std::string BashCompletions(const Program& program);
std::string ZshCompletions(const Program& program);
std::string FishCompletions(const Program& program);

}  // namespace qwen_image::cli

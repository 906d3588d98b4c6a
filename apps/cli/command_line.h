// From the words that a user typed to the options of a command.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "command.h"

namespace qwen_image::cli {

struct Program {
  std::string name, summary, version, footer;
  OptionList options;  // before the command
  std::vector<Command> commands;
};

// Fills the targets of all options that were typed. Returns the command, or null if none was typed; or the
// exit code, when --help or --version was answered or the words make no sense; stderr says why.
// Throws Error kUsage.
std::variant<const Command*, int> ParseCommandLine(const Program& program,
                                                   const std::vector<std::string>& typed);

}  // namespace qwen_image::cli

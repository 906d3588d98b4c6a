// An option as manuals and shells see it: how it is written, and what may stand behind it.
#pragma once

#include <string>
#include <vector>

#include "command_line.h"

namespace qwen_image::cli {

struct OptionForm {
  enum class Value { kNone, kAfterEquals, kRequired };  // kAfterEquals: may be left out

  std::vector<std::string> flags;  // "-o", "--output"
  std::string word;                // what a word without a flag in its place is called; empty: there is none
  Value value = Value::kNone;
  std::string value_name;            // "FILE"
  std::vector<std::string> choices;  // the possible values; empty: any
  bool is_file = false;
  bool is_repeated = false;  // may be given several times
  bool is_required = false;
  std::string help, group, environment;

  // The first clause of `help`, for a list of suggestions.
  std::string ShortHelp() const;
};

// In their order, with --help; with --version too where it is one.
std::vector<OptionForm> FormsOf(const Command& command);
std::vector<OptionForm> FormsOf(const Program& program);

}  // namespace qwen_image::cli

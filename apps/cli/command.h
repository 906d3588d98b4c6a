// A command of the program as data: its name, its options and what it runs. command_line.cc alone knows
// CLI11.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "options/names.h"
#include "qwen_image/cancel.h"
#include "qwen_image/machines.h"

namespace qwen_image::cli {

struct DebugOptions;
struct Program;

// Where the value of an option goes. A bool* is a flag; lists may be given several times.
using OptionTarget =
    std::variant<bool*, std::string*, std::filesystem::path*, int*, uint16_t*, int64_t*, double*,
                 std::optional<int64_t>*, std::optional<size_t>*, std::optional<double>*,
                 std::vector<std::string>*, std::vector<std::filesystem::path>*, std::vector<int64_t>*,
                 std::function<void()>,                     // a flag
                 std::function<void(const std::string&)>>;  // may throw Error kUsage

struct Option {
  std::string
      names;  // "-o,--output"; "path" is a word without a name; "--debug{run}" may have a value behind "="
  OptionTarget target;
  std::string help;
  std::string group = "";                // the heading in --help; empty: "Options"
  std::vector<std::string> one_of = {};  // the possible values; empty: any
  std::optional<std::pair<double, double>> range = {};
  std::function<std::string(const std::string&)> check = {};  // what is wrong with a value; empty: nothing
  const char* type = nullptr;  // what --help calls a value; null: by the target's type
  bool required = false;
  bool may_be_empty = false;          // an empty value is usually a script's variable that was never set
  bool comma_separated = false;       // of a list
  bool repeated = false;              // of a function: it is called for each of several values
  const char* environment = nullptr;  // a variable that gives the value, too
  std::string excludes = "";          // the name of an option that cannot be given with it
};
using OptionList = std::vector<Option>;

// An option whose values are the names of an enum (options/names.h).
template <typename Value>
Option NamedOption(const std::string& names, std::optional<Value>& target, const std::string& help,
                   const std::string& group = "") {
  return {.names = names,
          .target = [&target](const std::string& name) { target = ParseName<Value>(name); },
          .help = help,
          .group = group,
          .one_of = AllNames<Value>()};
}

// What a command is run with.
struct Session {
  const DebugOptions& debug;
  const CancelFlag& cancel;
  const Program& program;
  std::vector<std::string> arguments;  // as they were typed
  std::shared_ptr<Machines> machines;  // that draw together; null: there is only this one
  bool examines = false;               // exit code 1 is the command's own: what it looked at is not usable
};

struct Command {
  std::string name;
  std::string summary;
  OptionList options;
  std::string footer;                      // examples, exit codes
  std::function<int(const Session&)> run;  // returns the exit code; throws Error
  bool draws = false;                      // --debug is for it
  bool many_machines = false;              // several may run it together
};

OptionList operator+(OptionList list, OptionList more);

// The commands, each in its own file.
Command BenchCommand();
Command BisectCommand();
Command CompareCommand();
Command CompletionsCommand();
Command ConvertCommand();
Command DevicesCommand();
Command DoctorCommand();
Command EditCommand();
Command GenerateCommand();
Command InspectCommand();
Command ListCommand();
Command ManCommand();
Command ProveCommand();
Command PullCommand();
Command RmCommand();
Command RunCommand();
Command SelftestCommand();
Command ServeCommand();
Command SubmitCommand();
Command WorkCommand();

}  // namespace qwen_image::cli

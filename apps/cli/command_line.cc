#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/fail.h"
#include "files/text.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

constexpr int kUsage = 2;

template <typename Value>
inline constexpr bool kIsList = false;
template <typename Entry>
inline constexpr bool kIsList<std::vector<Entry>> = true;

// The option without its checks.
CLI::Option* Declare(CLI::App& app, const Option& option) {
  const auto declare = [&](const auto& target) -> CLI::Option* {
    using Kind = std::decay_t<decltype(target)>;
    if constexpr (std::is_same_v<Kind, std::function<void()>>) {
      return app.add_flag_callback(option.names, target, option.help);
    } else if constexpr (std::is_same_v<Kind, std::function<void(const std::string&)>>) {
      if (!option.repeated) return app.add_option_function<std::string>(option.names, target, option.help);
      const auto each = [target](const std::vector<std::string>& values) {
        for (const std::string& value : values) target(value);
      };
      return app.add_option_function<std::vector<std::string>>(option.names, each, option.help)
          ->take_all()
          ->allow_extra_args(false);
    } else if constexpr (std::is_same_v<Kind, bool*>) {
      return app.add_flag(option.names, *target, option.help);
    } else {
      using Value = std::remove_pointer_t<Kind>;
      if constexpr (std::is_same_v<Value, std::string> || std::is_same_v<Value, std::filesystem::path>) {
        if (option.names.find('{') != std::string::npos)
          return app.add_flag(option.names, *target, option.help);
      }
      CLI::Option* declared = app.add_option(option.names, *target, option.help);
      if constexpr (kIsList<Value>) {
        if (option.comma_separated) return declared->delimiter(',');
        return declared->take_all()->allow_extra_args(false);  // the next word may be another argument
      }
      return declared;
    }
  };
  return std::visit(declare, option.target);
}

CLI::Validator RangeOf(const Option& option) {
  const auto [least, most] = *option.range;
  const bool fraction = std::holds_alternative<double*>(option.target) ||
                        std::holds_alternative<std::optional<double>*>(option.target);
  if (fraction) return CLI::Range(least, most);
  return CLI::Range(static_cast<int64_t>(least), static_cast<int64_t>(most));
}

// CLI11 would read 010 as eight.
std::string RefuseOctal(const std::string& value) {
  const size_t first = value.find_first_not_of("+-");
  const bool octal = first != value.npos && value[first] == '0' && first + 1 < value.size();
  return octal && value.find('.') == value.npos ? "write the number without a leading zero" : "";
}

bool IsWhole(const OptionTarget& target) {
  return std::visit(
      [](const auto& where) {
        using Kind = std::decay_t<decltype(where)>;
        return std::is_same_v<Kind, int*> || std::is_same_v<Kind, uint16_t*> ||
               std::is_same_v<Kind, int64_t*> || std::is_same_v<Kind, std::optional<int64_t>*> ||
               std::is_same_v<Kind, std::optional<size_t>*> || std::is_same_v<Kind, std::vector<int64_t>*>;
      },
      target);
}

void Add(CLI::App& app, const Option& option) {
  CLI::Option* declared = Declare(app, option);
  if (!option.group.empty()) declared->group(option.group);
  if (option.type) declared->type_name(option.type);
  if (IsWhole(option.target)) declared->check(RefuseOctal);
  if (option.range) declared->check(RangeOf(option));
  if (!option.one_of.empty()) declared->check(CLI::IsMember(option.one_of));
  if (option.check)
    declared->check(CLI::Validator([check = option.check](std::string& text) { return check(text); }, ""));
  if (!option.may_be_empty)  // CLI11 would take it for "not given"
    declared->check([](const std::string& value) { return value.empty() ? "the value is empty" : ""; });
  declared->required(option.required);
  if (option.environment) declared->envname(option.environment);
  if (!option.excludes.empty()) declared->excludes(app.get_option(option.excludes));
}

// What CLI11's parse() takes, which is in reverse order. It would take the word behind "--name=" for the
// value: here that value becomes a word of its own, which is empty.
std::vector<std::string> CommandLineWords(const CLI::App& app, const std::vector<std::string>& typed) {
  const CLI::App* command = &app;
  const auto takes_value = [&](const std::string& name) {
    const CLI::Option* option = command->get_option_no_throw(name);
    return option && option->get_items_expected_min() > 0;
  };
  std::vector<std::string> words;
  bool is_value = false;  // of the option before
  for (auto word = typed.begin(); word != typed.end(); ++word) {
    words.push_back(*word);
    if (std::exchange(is_value, false)) continue;
    if (*word == "--") {  // no options from here on
      words.insert(words.end(), word + 1, typed.end());
      break;
    }
    if (command == &app) {
      const auto named =
          app.get_subcommands([&](const CLI::App* other) { return other->get_name() == *word; });
      if (!named.empty()) command = named.front();
    }
    is_value = word->starts_with('-') && takes_value(*word);
    if (word->starts_with("--") && word->find('=') == word->size() - 1 &&
        takes_value(word->substr(0, word->size() - 1))) {
      words.back().pop_back();
      words.emplace_back();
    }
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::string ParseErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  if (!commands.empty()) {
    const std::vector<std::string> words = commands.front()->remaining();
    const auto said = [&](const char* word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (commands.front()->get_name() == "generate" && (said("-i") || said("--input-image")))
      return "generate begins with a text; to change a picture use: qwen-image edit TEXT --input-image "
             "PICTURE, or generate with --init-image PICTURE";
    return error.what();
  }
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with('-')) return fmt::format("there is no command {}", Quoted(word));
  }
  if (!app.remaining().empty()) return fmt::format("unknown option {}", app.remaining().front());
  return error.what();
}

}  // namespace

OptionList operator+(OptionList list, OptionList more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
  return list;
}

std::variant<const Command*, int> ParseCommandLine(const Program& program,
                                                   const std::vector<std::string>& typed) {
  CLI::App app{program.summary};
  app.name(program.name);
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", program.version);
  app.footer(program.footer);
  for (const Option& option : program.options) Add(app, option);
  for (const Command& command : program.commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    for (const Option& option : command.options) Add(*sub, option);
    sub->footer(command.footer);
  }
  try {
    app.parse(CommandLineWords(app, typed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto commands = app.get_subcommands();
    Print(stderr, "{}: {} (see {} {}--help)\n", program.name, Printable(ParseErrorText(app, error), 1000),
          program.name, commands.empty() ? "" : commands[0]->get_name() + " ");
    return kUsage;
  }
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) return nullptr;
  const auto named = [&](const Command& command) { return command.name == parsed.front()->get_name(); };
  return &*std::find_if(program.commands.begin(), program.commands.end(), named);
}

}  // namespace qwen_image::cli

#include "completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "option_form.h"

namespace qwen_image::cli {
namespace {

using Forms = std::vector<OptionForm>;
using Value = OptionForm::Value;

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// One word of a POSIX shell.
std::string ShellWord(const std::string& text) { return fmt::format("'{}'", ReplaceAll(text, "'", "'\\''")); }

std::vector<std::string> FlagsOf(const Forms& forms) {
  std::vector<std::string> flags;
  for (const OptionForm& form : forms) flags.insert(flags.end(), form.flags.begin(), form.flags.end());
  return flags;
}

bool HasFileWord(const Forms& forms) {
  return std::any_of(forms.begin(), forms.end(),
                     [](const OptionForm& form) { return !form.word.empty() && form.is_file; });
}

// What may stand where no flag does.
std::vector<std::string> ChoicesOfWords(const Forms& forms) {
  std::vector<std::string> choices;
  for (const OptionForm& form : forms) {
    if (!form.word.empty()) choices.insert(choices.end(), form.choices.begin(), form.choices.end());
  }
  return choices;
}

// ---- bash ----

// The branches for the values of a command's options: "generate:-o|generate:--output) …".
std::string BashValues(const std::string& command, const Forms& forms) {
  std::string text;
  for (const OptionForm& form : forms) {
    if (form.value != Value::kRequired || form.flags.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& flag : form.flags) patterns.push_back(fmt::format("{}:{}", command, flag));
    const std::string action = !form.choices.empty()
                                   ? "words=" + ShellWord(fmt::format("{}", fmt::join(form.choices, " ")))
                               : form.is_file ? "files=yes"
                                              : "return";
    text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), action);
  }
  return text;
}

std::string BashNames(const std::string& command, const Forms& forms, const std::vector<std::string>& more) {
  return fmt::format(
      "    {}:*) words={} files={} ;;\n", command.empty() ? "\"\"" : command,
      ShellWord(fmt::format("{} {} {}", fmt::join(more, " "), fmt::join(ChoicesOfWords(forms), " "),
                            fmt::join(FlagsOf(forms), " "))),
      HasFileWord(forms) ? "yes" : "''");
}

constexpr const char* kBash = R"(# Completions of {name} for bash, printed by: {name} completions bash
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command='' words='' files='' i
  # bash takes "--name=value" for three words
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      =) ((i++)) ;;
      {valued}) [[ ${{COMP_WORDS[i + 1]}} == = ]] || ((i++)) ;;
      {commands}) command=${{COMP_WORDS[i]}} && break ;;
    esac
  done
  case $command:$previous in
{branches}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ $files && $current != -* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -F {function} {name}
)";

// ---- zsh ----

// What _arguments shows in brackets.
std::string ZshHelp(const OptionForm& form) {
  return fmt::format("[{}]", ReplaceAll(ReplaceAll(form.ShortHelp(), "[", "\\["), "]", "\\]"));
}

std::string ZshAction(const OptionForm& form) {
  if (!form.choices.empty()) return fmt::format("({})", fmt::join(form.choices, " "));
  return form.is_file ? "_files" : " ";
}

// A specification of _arguments for each way to write an option, and for its place without a name.
std::vector<std::string> ZshSpecifications(const Forms& forms) {
  std::vector<std::string> specifications;
  int place = 0;
  for (const OptionForm& form : forms) {
    for (const std::string& flag : form.flags) {
      std::string text = form.is_repeated ? "*" : fmt::format("({})", fmt::join(form.flags, " "));
      text += flag;
      const bool is_long = flag.starts_with("--");
      if (form.value == Value::kRequired) text += is_long ? "=" : "+";
      if (form.value == Value::kAfterEquals) text += "=-";
      text += ZshHelp(form);
      if (form.value != Value::kNone)
        text += fmt::format("{}{}:{}", form.value == Value::kRequired ? ":" : "::", form.value_name,
                            ZshAction(form));
      specifications.push_back(ShellWord(text));
    }
    if (!form.word.empty())
      specifications.push_back(ShellWord(fmt::format("{}::{}:{}", ++place, form.word, ZshAction(form))));
  }
  return specifications;
}

constexpr const char* kZsh = R"(#compdef {name}
# Completions of {name} for zsh, printed by: {name} completions zsh
_{name}() {{
  local context state state_descr line
  typeset -A opt_args
  local -a commands=(
    {summaries}
  )
  _arguments -C \
    {options} \
    '1:command:->command' '*::argument:->arguments' && return
  case $state in
    command) _describe -t commands command commands ;;
    arguments)
      case $line[1] in
{branches}      esac
      ;;
  esac
}}
if [[ $funcstack[1] == _{name} ]]; then
  _{name} "$@"
else
  compdef _{name} {name}
fi
)";

// ---- fish ----

std::string FishWord(const std::string& text) {
  return fmt::format("'{}'", ReplaceAll(ReplaceAll(text, "\\", "\\\\"), "'", "\\'"));
}

std::string FishLines(const std::string& program, const std::string& condition, const Forms& forms) {
  const std::string begin = fmt::format("complete -c {} -n {}", program, FishWord(condition));
  std::string text;
  for (const OptionForm& form : forms) {
    if (form.flags.empty()) continue;
    text += begin;
    for (const std::string& flag : form.flags)
      text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    if (form.value == Value::kRequired) {
      text += form.is_file ? " -r -F" : " -x";
      if (!form.choices.empty()) text += " -a " + FishWord(fmt::format("{}", fmt::join(form.choices, " ")));
    }
    text += fmt::format(" -d {}\n", FishWord(form.ShortHelp()));
  }
  if (const auto choices = ChoicesOfWords(forms); !choices.empty())
    text += fmt::format("{} -a {}\n", begin, FishWord(fmt::format("{}", fmt::join(choices, " "))));
  return HasFileWord(forms) ? text + begin + " -F\n" : text;
}

}  // namespace

std::string BashCompletions(const Program& program) {
  std::vector<std::string> commands, valued;
  for (const OptionForm& form : FormsOf(program)) {
    if (form.value == Value::kRequired) valued.insert(valued.end(), form.flags.begin(), form.flags.end());
  }
  std::string values = BashValues("", FormsOf(program)), names;
  for (const Command& command : program.commands) {
    commands.push_back(command.name);
    values += BashValues(command.name, FormsOf(command));
    names += BashNames(command.name, FormsOf(command), {});
  }
  names += BashNames("", FormsOf(program), commands);
  // A pattern that nothing fits, where no option before the command has a value.
  if (valued.empty()) valued.push_back("''");
  using fmt::literals::operator""_a;
  return fmt::format(
      kBash, "name"_a = program.name, "function"_a = fmt::format("_{}", ReplaceAll(program.name, "-", "_")),
      "valued"_a = fmt::format("{}", fmt::join(valued, " | ")),
      "commands"_a = fmt::format("{}", fmt::join(commands, " | ")), "branches"_a = values + names);
}

std::string ZshCompletions(const Program& program) {
  constexpr const char* kNextLine = " \\\n    ";
  std::vector<std::string> summaries;
  std::string branches;
  for (const Command& command : program.commands) {
    summaries.push_back(ShellWord(command.name + ":" + ReplaceAll(command.summary, ":", "\\:")));
    branches += fmt::format("        {}) _arguments{}{} ;;\n", command.name, kNextLine,
                            fmt::join(ZshSpecifications(FormsOf(command)), kNextLine));
  }
  using fmt::literals::operator""_a;
  return fmt::format(
      kZsh, "name"_a = program.name, "summaries"_a = fmt::format("{}", fmt::join(summaries, "\n    ")),
      "options"_a = fmt::format("{}", fmt::join(ZshSpecifications(FormsOf(program)), kNextLine)),
      "branches"_a = branches);
}

std::string FishCompletions(const Program& program) {
  std::string text = fmt::format(
      "# Completions of {0} for fish, printed by: {0} completions fish\ncomplete -c {0} -f\n", program.name);
  text += FishLines(program.name, "__fish_use_subcommand", FormsOf(program));
  for (const Command& command : program.commands) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program.name, command.name,
                        FishWord(command.summary));
    text += FishLines(program.name, "__fish_seen_subcommand_from " + command.name, FormsOf(command));
  }
  return text;
}

}  // namespace qwen_image::cli

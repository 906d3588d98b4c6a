#include "option_form.h"

#include <algorithm>
#include <type_traits>

namespace qwen_image::cli {
namespace {

// What --help calls a value, and of what kind it is, by the type of its target.
void DescribeTarget(const OptionTarget& target, OptionForm& form) {
  const auto describe = [&form](const auto& where) {
    using Kind = std::decay_t<decltype(where)>;
    const auto is = [](auto* null) { return std::is_same_v<Kind, std::remove_pointer_t<decltype(null)>>; };
    using Flag = std::function<void()>;
    if constexpr (std::is_same_v<Kind, bool*> || std::is_same_v<Kind, Flag>) return;
    form.value = OptionForm::Value::kRequired;
    using Paths = std::vector<std::filesystem::path>;
    form.is_file = is(static_cast<std::filesystem::path**>(nullptr)) || is(static_cast<Paths**>(nullptr));
    form.is_repeated = is(static_cast<Paths**>(nullptr)) ||
                       is(static_cast<std::vector<std::string>**>(nullptr)) ||
                       is(static_cast<std::vector<int64_t>**>(nullptr));
    const bool text = is(static_cast<std::string**>(nullptr)) ||
                      is(static_cast<std::vector<std::string>**>(nullptr)) ||
                      is(static_cast<std::function<void(const std::string&)>*>(nullptr));
    const bool fraction =
        is(static_cast<double**>(nullptr)) || is(static_cast<std::optional<double>**>(nullptr));
    form.value_name = form.is_file ? "PATH" : text ? "TEXT" : fraction ? "FLOAT" : "INT";
  };
  std::visit(describe, target);
}

OptionForm FormOf(const Option& option) {
  OptionForm form{.choices = option.one_of,
                  .is_required = option.required,
                  .help = option.help,
                  .group = option.group,
                  .environment = option.environment ? option.environment : ""};
  DescribeTarget(option.target, form);
  form.is_repeated = form.is_repeated || option.repeated;
  if (option.type) form.value_name = option.type;
  form.is_file = form.is_file || form.value_name == "FILE";
  for (size_t begin = 0; begin <= option.names.size();) {
    const size_t end = std::min(option.names.find(',', begin), option.names.size());
    const std::string name = option.names.substr(begin, end - begin);
    const size_t brace = name.find('{');  // the value where none is given
    if (brace != name.npos) form.value = OptionForm::Value::kAfterEquals;
    if (name.starts_with('-')) {
      form.flags.push_back(name.substr(0, brace));
    } else {
      form.word = name;
    }
    begin = end + 1;
  }
  return form;
}

std::vector<OptionForm> WithHelp(const OptionList& options) {
  std::vector<OptionForm> forms = {{.flags = {"-h", "--help"}, .help = "Print this help message and exit"}};
  std::transform(options.begin(), options.end(), std::back_inserter(forms), FormOf);
  return forms;
}

}  // namespace

std::string OptionForm::ShortHelp() const {
  size_t end = help.size();
  for (const char* mark : {". ", "; ", " (", "\n"}) end = std::min(end, help.find(mark));
  return help.substr(0, end);
}

std::vector<OptionForm> FormsOf(const Command& command) { return WithHelp(command.options); }

std::vector<OptionForm> FormsOf(const Program& program) {
  std::vector<OptionForm> forms = WithHelp(program.options);
  forms.insert(forms.begin() + 1,
               {.flags = {"--version"}, .help = "Display program version information and exit"});
  return forms;
}

}  // namespace qwen_image::cli

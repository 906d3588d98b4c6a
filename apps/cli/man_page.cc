#include "man_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "option_form.h"

namespace qwen_image::cli {
namespace {

// Text that roff prints as it is: no line of it is a command, and a minus can be copied.
std::string Roff(const std::string& text) {
  std::string roff;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
    line_begins = c == '\n';
  }
  return roff;
}

std::string Heading(const char* macro, const std::string& text) {
  return fmt::format(".{} \"{}\"\n", macro, Roff(text));
}

// Lines that stay as they are.
std::string Verbatim(const std::string& text) { return fmt::format(".nf\n{}\n.fi\n", Roff(text)); }

std::string ValueOf(const OptionForm& form) {
  if (form.choices.empty()) return fmt::format("\\fI{}\\fR", Roff(form.value_name));
  std::string text;
  for (const std::string& choice : form.choices)
    text += fmt::format("{}{}", text.empty() ? "" : "|", Roff(choice));
  return text;
}

// "-o, --output PATH"
std::string Tag(const OptionForm& form) {
  if (form.flags.empty()) return fmt::format("\\fI{}\\fR", Roff(form.word));
  std::string text;
  for (const std::string& flag : form.flags)
    text += fmt::format("{}\\fB{}\\fR", text.empty() ? "" : ", ", Roff(flag));
  if (form.value == OptionForm::Value::kRequired) text += fmt::format(" {}", ValueOf(form));
  if (form.value == OptionForm::Value::kAfterEquals) text += fmt::format("[={}]", ValueOf(form));
  return form.word.empty() ? text : fmt::format("\\fI{}\\fR, {}", Roff(form.word), text);
}

std::string Paragraph(const OptionForm& form) {
  std::string text = fmt::format(".TP\n{}\n{}\n", Tag(form), Roff(form.help));
  if (form.is_required) text += "(needed)\n";
  if (!form.environment.empty()) text += fmt::format("(environment: {})\n", Roff(form.environment));
  return text;
}

// Those of a group stand together, under its name.
std::string Options(const std::vector<OptionForm>& forms) {
  std::vector<std::string> groups;
  for (const OptionForm& form : forms) {
    if (std::find(groups.begin(), groups.end(), form.group) == groups.end()) groups.push_back(form.group);
  }
  std::string text;
  for (const std::string& group : groups) {
    if (!group.empty()) text += fmt::format(".PP\n\\fI{}:\\fR\n", Roff(group));
    for (const OptionForm& form : forms) {
      if (form.group == group) text += Paragraph(form);
    }
  }
  return text;
}

std::string Synopsis(const Program& program, const Command& command) {
  std::string text = fmt::format("\\fB{} {}\\fR", Roff(program.name), Roff(command.name));
  for (const OptionForm& form : FormsOf(command)) {
    if (form.word.empty()) continue;
    const std::string word = fmt::format("\\fI{}\\fR", Roff(form.word));
    text += form.is_required ? fmt::format(" {}", word) : fmt::format(" [{}]", word);
  }
  return text + " [\\fIoptions\\fR]\n";
}

}  // namespace

std::string ManPage(const Program& program, const std::string& version) {
  std::string title = program.name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  std::string page = fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", Roff(title),
                                 Roff(program.name), Roff(version));
  // Flush left, without hyphens: an option's name must not be torn apart.
  page += ".ad l\n.nh\n";
  page += Heading("SH", "NAME") + fmt::format("{} \\- {}\n", Roff(program.name), Roff(program.summary));
  page += Heading("SH", "SYNOPSIS") +
          fmt::format("\\fB{}\\fR [\\fIoptions\\fR] \\fIcommand\\fR …\n", Roff(program.name));
  for (const Command& command : program.commands) page += ".br\n" + Synopsis(program, command);
  page += Heading("SH", "OPTIONS BEFORE THE COMMAND") + Options(FormsOf(program));
  page += Heading("SH", "COMMANDS");
  for (const Command& command : program.commands) {
    page += Heading("SS", program.name + " " + command.name);
    page += Roff(command.summary) + "\n" + Options(FormsOf(command));
    if (!command.footer.empty()) page += ".PP\n" + Verbatim(command.footer);
  }
  return page + Heading("SH", "EXIT STATUS AND EXAMPLES") + Verbatim(program.footer);
}

}  // namespace qwen_image::cli

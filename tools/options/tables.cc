#include "tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "options/field.h"
#include "options/text_form.h"

namespace qwen_image::options {
namespace {

// "|" would end a cell.
std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

std::string Code(const std::string& text) { return "`" + text + "`"; }

std::string WithDefault(const Field& field) {
  const std::string default_text = field.default_text;
  return Cell(default_text.empty() ? field.help : fmt::format("{} (default: {})", field.help, default_text));
}

const char* DecidesText(Decides decides) {
  switch (decides) {
    case Decides::kLatents:
      return "latents";
    case Decides::kLatentsOfSources:
      return "latents of pictures that came, else pixels";
    case Decides::kPixels:
      return "pixels";
    case Decides::kNothing:
      break;
  }
  return "nothing";
}

const char* RecordedText(Recorded recorded) {
  switch (recorded) {
    case Recorded::kRequired:
    case Recorded::kAlways:
      return "always";
    case Recorded::kIfSet:
      return "if set";
    case Recorded::kAsName:
      return "its name";
    case Recorded::kNever:
      break;
  }
  return "–";
}

std::string HttpName(const Field& field) {
  std::string text = field.not_in.http ? "–" : Code(field.name);
  if (!field.not_in.http && field.not_in.openai) text += ", not OpenAI's";
  if (field.a1111 && field.a1111 != std::string_view(field.name))
    text += fmt::format(", A1111 `{}`", field.a1111);
  return text;
}

std::string CommandLineName(const Field& field) {
  const CommandLine& line = field.command_line;
  std::string text = Code(FlagOf(field));
  if (line.letter) text = fmt::format("`-{}`, {}", line.letter, text);
  if (line.not_in_generate) text += ", `edit`";
  if (line.not_in_edit) text += ", `generate`";
  return text;
}

// What JSON has for it where that is not what KindOf says.
std::string JsonKind(const Field& field) {
  if (IsData(field)) return KindOf(field) + " as base64";
  if (std::holds_alternative<Margins GenerateRequest::*>(field.member)) return "`[left, top, right, bottom]`";
  if (std::holds_alternative<uint64_t GenerateRequest::*>(field.member))
    return "0 to 2^64 − 1; absent, −1 or `\"random\"`: one is drawn, and the job says which";
  return KindOf(field);
}

}  // namespace

std::string OptionsTable() {
  std::string text =
      "| setting | | value | command line | HTTP | decides | in the record "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const Field& field : Fields())
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", field.name, WithDefault(field),
                        KindOf(field), CommandLineName(field), HttpName(field), DecidesText(field.decides),
                        RecordedText(field.recorded));
  return text;
}

std::string WhyNotTable() {
  std::string text = "| setting | is not in | because |\n|---|---|---|\n";
  for (const Field& field : Fields()) {
    const std::pair<const char*, const char*> surfaces[] = {
        {"`generate`", field.command_line.not_in_generate},
        {"`edit`", field.command_line.not_in_edit},
        {"HTTP", field.not_in.http},
        {"OpenAI's API", field.not_in.openai},
        {"C", field.not_in.c},
        {"Python", field.not_in.python},
        {"the record", field.not_in.record}};
    for (const auto& [surface, why] : surfaces) {
      if (why) text += fmt::format("| `{}` | {} | {} |\n", field.name, surface, why);
    }
  }
  return text;
}

std::string ServerTable() {
  std::string text = "| field | value | |\n|---|---|---|\n";
  for (const Field& field : Fields()) {
    if (!field.not_in.http)
      text += fmt::format("| `{}` | {} | {} |\n", field.name, JsonKind(field),
                          field.name == std::string_view("seed") ? Cell(field.help) : WithDefault(field));
  }
  return text;
}

std::string OpenAiList() {
  std::vector<std::string> names;
  for (const Field& field : Fields()) {
    const bool theirs =
        field.name == std::string_view("prompt") || field.name == std::string_view("background");
    if (!theirs && !field.not_in.http && !field.not_in.openai) names.push_back(Code(field.name));
  }
  return fmt::format("{}\n", fmt::join(names, ", "));
}

std::string PythonList() {
  std::vector<std::string> names;
  for (const Field& field : Fields()) {
    if (!field.not_in.python) names.push_back(Code(field.name));
  }
  return fmt::format("{}\n", fmt::join(names, ", "));
}

}  // namespace qwen_image::options

#include "generate_options.h"

#include "core/fail.h"
#include "model_options.h"
#include "options/text_form.h"

namespace qwen_image::cli {
namespace {

using options::Field;

std::string NamesOf(const Field& field) {
  std::string names = options::FlagOf(field);
  if (field.command_line.letter) names = fmt::format("-{},{}", field.command_line.letter, names);
  return field.command_line.positional ? fmt::format("{},{}", field.name, names) : names;
}

std::string HelpOf(const Field& field, bool edit) {
  const options::CommandLine& line = field.command_line;
  const std::string help = options::IsOnByDefault(field) ? line.off_help
                           : edit && line.edit_help      ? line.edit_help
                                                         : field.help;
  const std::string default_text = edit && line.edit_default ? line.edit_default : field.default_text;
  return default_text.empty() || options::IsOnByDefault(field)
             ? help
             : fmt::format("{} (default: {})", help, default_text);
}

std::string GroupOf(const Field& field, bool edit) {
  const std::string group = field.command_line.group;
  return edit && group == options::kSourcesGroup ? "Pictures" : group;
}

// What --help calls a value.
const char* TypeOf(const Field& field) {
  const GenerateRequest request;
  return options::VisitValue(
      field, request,
      options::ByType{[](int64_t) { return "INT"; }, [](const std::optional<int64_t>&) { return "INT"; },
                      [](double) { return "FLOAT"; }, [](const std::optional<double>&) { return "FLOAT"; },
                      [](const auto&) { return "TEXT"; }});
}

void Take(const Field& field, const std::string& text, GenerateOptions& o) {
  options::SetFromText(field, text, options::FlagOf(field), o.request);
  o.given.insert(field.name);
  if (std::holds_alternative<uint64_t GenerateRequest::*>(field.member))
    o.random_seed = options::IsRandomSeed(text);
}

Option OptionOf(const Field& field, GenerateOptions& o) {
  Option option{.names = NamesOf(field),
                .target = [&field, &o](const std::string& text) { Take(field, text, o); },
                .help = HelpOf(field, o.edit),
                .group = GroupOf(field, o.edit),
                .type = TypeOf(field),
                .may_be_empty = field.command_line.may_be_empty};
  if (options::IsData(field)) {
    option.target = [&field, &o](const std::string& text) { o.files[field.name].emplace_back(text); };
    option.type = "FILE";
    option.repeated = std::holds_alternative<std::vector<Image> GenerateRequest::*>(field.member);
  }
  if (const auto* flag = std::get_if<bool GenerateRequest::*>(&field.member)) {
    option.target = [member = *flag, &field, &o] {
      o.request.*member = !options::IsOnByDefault(field);
      o.given.insert(field.name);
    };
    option.type = nullptr;
  }
  if (std::holds_alternative<GenerateRequest::Tiling GenerateRequest::*>(field.member))
    option.one_of = AllNames<GenerateRequest::Tiling>();
  return option;
}

// The settings of a group, with what is theirs on the command line only.
OptionList GroupOfSettings(const char* group, GenerateOptions& o) {
  OptionList list;
  for (const Field& field : options::Fields()) {
    const bool has = o.edit ? !field.command_line.not_in_edit : !field.command_line.not_in_generate;
    if (!has || std::string_view(field.command_line.group) != group) continue;
    if (field.name == std::string_view("width"))
      list.push_back({.names = "-s,--size",
                      .target = &o.size,
                      .help = fmt::format("{} (default: {})", options::kSizeHelp,
                                          o.edit ? options::kSizeDefaultOfEdits : options::kSizeDefault),
                      .group = group});
    list.push_back(OptionOf(field, o));
    if (field.name == std::string_view("seed"))
      list.push_back({.names = "--count",
                      .target = &o.count,
                      .help = "Draw N pictures: seed, seed+1, …, named out-001.png, out-002.png, …",
                      .group = group,
                      .range = {{1, kMaxPictures}}});
  }
  return list;
}

OptionList FileOptions(GenerateOptions& o) {
  return {
      {.names = "-o,--output",
       .target = &o.output,
       .help = "The picture to write: .png, .jpg or .webp (default: picture-DATE-TIME.png)"},
      {.names = "--output-compression",
       .target = &o.output_compression,
       .help =
           fmt::format("How much of a JPEG or WebP picture is kept, 0 to 100; WebP of 100 keeps every pixel "
                       "(default: {})",
                       kDefaultQuality),
       .range = {{0, 100}}},
      SourceMarkOption(o.no_source_mark),
      {.names = "--prompts",
       .target = &o.prompts_file,
       .help = "Draw one picture for each line of this file, loading the model once"},
      {.names = "--shard",
       .target = &o.shard,
       .help =
           "I/N: of the pictures of --prompts and --count draw those of machine I of N (1 to N), and skip "
           "those that are there already"},
      {.names = "--from",
       .target = &o.from,
       .help = "Draw a picture again from the settings in its metadata; other options override them"}};
}

OptionList PromptCacheOptions(GenerateOptions& o) {
  return {{.names = "--prompt-cache",
           .target = &o.prompt_cache,
           .help = "Where embeddings of prompts are kept for later runs, up to 256 MB (default: "
                   "qwen-image/prompts in "
                   "$XDG_CACHE_HOME or ~/.cache)",
           .group = options::kPromptGroup},
          {.names = "--no-prompt-cache",
           .target = &o.no_prompt_cache,
           .help = "Neither keep embeddings of prompts nor use those of earlier runs",
           .group = options::kPromptGroup,
           .excludes = "--prompt-cache"}};
}

OptionList ReportingOptions(GenerateOptions& o) {
  const char* group = "Reporting";
  return {
      {.names = "-q,--quiet", .target = &o.quiet, .help = "Print errors only", .group = group},
      {.names = "--json",
       .target = &o.json,
       .help = "Print one JSON object per picture instead of the summary",
       .group = group},
      {.names = "--profile",
       .target = &o.profile,
       .help = "Write the microseconds of each operation of each component to this file, as JSON (see also "
               "bench --profile)",
       .group = group}};
}

}  // namespace

const std::vector<std::filesystem::path>& GenerateOptions::Files(std::string_view name) const {
  static const std::vector<std::filesystem::path> kNone;
  const auto found = files.find(name);
  return found == files.end() ? kNone : found->second;
}

Option SourceMarkOption(bool& no_source_mark, const char* group) {
  return {.names = "--no-source-mark",
          .target = &no_source_mark,
          .help = "Do not write into pictures that a trained model made them (IPTC's digital source type)",
          .group = group};
}

OptionList GenerateOptionList(GenerateOptions& o) {
  const OptionList sources = GroupOfSettings(options::kSourcesGroup, o);
  const OptionList first = o.edit ? sources : OptionList(), later = o.edit ? OptionList() : sources;
  return GroupOfSettings("", o) + FileOptions(o) + first + ModelOptionList(o.model) +
         GroupOfSettings(options::kPictureGroup, o) + later + GroupOfSettings(options::kPromptGroup, o) +
         PromptCacheOptions(o) + MachineOptionList(o.machine) + GroupOfSettings(options::kMachineGroup, o) +
         ReportingOptions(o);
}

}  // namespace qwen_image::cli

// Every setting of a picture is declared once, in fields.cc. The command line, the server, C, Python, the
// record in a PNG, the identity of a run and the tables in the documents are made from these declarations.
// docs/architecture.md tells how a setting is added.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "qwen_image/qwen_image.h"

namespace qwen_image::options {

// What a setting decides. The identity of a run's state on disk contains the settings that decide latents.
enum class Decides {
  kLatents,           // the numbers that are denoised, and so the picture
  kLatentsOfSources,  // those of pictures that a run begins with; without one only the pixels
  kPixels,            // only what becomes of the finished latents
  kNothing,
};

// How a setting stands in the record of a picture (PNG metadata, --json), which --from reads.
enum class Recorded {
  kRequired,  // always; a record without it is broken
  kAlways,    // always; the records of older versions may lack it
  kIfSet,     // unless it has its default
  kAsName,    // data: the record holds what it is called, and --from asks for the file
  kNever,
};

// The type of the member is the type of the setting on every surface.
using Member =
    std::variant<std::string GenerateRequest::*, std::optional<std::string> GenerateRequest::*,
                 bool GenerateRequest::*, int64_t GenerateRequest::*,
                 std::optional<int64_t> GenerateRequest::*,
                 uint64_t GenerateRequest::*,  // a seed: it may also be drawn
                 double GenerateRequest::*, std::optional<double> GenerateRequest::*,
                 std::vector<double> GenerateRequest::*, GenerateRequest::Tiling GenerateRequest::*,
                 Margins GenerateRequest::*, std::filesystem::path GenerateRequest::*,
                 std::optional<InitialLatents> GenerateRequest::*, std::vector<Image> GenerateRequest::*,
                 std::optional<Image> GenerateRequest::*, std::optional<GreyImage> GenerateRequest::*>;

// The headings of --help.
inline constexpr const char *kPictureGroup = "Picture", *kPromptGroup = "Prompt", *kMachineGroup = "Machine",
                            *kSourcesGroup = "Starting from a picture";

struct CommandLine {
  const char* group = "";
  char letter = 0;             // of a short form: 'n' for -n
  const char* flag = nullptr;  // null: the name with dashes; of a flag that is on by default "no-" before it
  bool positional = false;     // it may stand without its name
  bool may_be_empty = false;
  const char* not_in_generate = nullptr;  // why the command does not have it; null: it has
  const char* not_in_edit = nullptr;
  const char* edit_help = nullptr;     // where it differs from `help`
  const char* edit_default = nullptr;  // where it differs from `default_text`
  const char* off_help = nullptr;      // of a flag that is on by default: what switching it off does
};

// Why a surface does not have a setting; null: it has.
struct NotIn {
  const char *http = nullptr, *openai = nullptr, *c = nullptr, *python = nullptr, *record = nullptr;
};

struct Field {
  const char* name;
  Member member;
  Decides decides;
  Recorded recorded;
  const char* help;
  const char* default_text = "";                // for users; empty: there is nothing to say
  std::optional<double> least = {}, most = {};  // of a number; none: the model knows
  const char* least_means = nullptr;            // for messages: "off"
  const char* subject = nullptr;                // what messages call it; null: its name
  CommandLine command_line = {};
  NotIn not_in = {};
  const char* a1111 = nullptr;  // what AUTOMATIC1111's API calls it; null: that has no such thing
};

// In the order of GenerateRequest's members.
std::span<const Field> Fields();
const Field* FindField(std::string_view name);  // null: there is none

// "size" is short for two fields on the command line, in requests over HTTP and in records.
inline constexpr const char* kSizeName = "size";
inline constexpr const char* kSizeHelp =
    "WIDTHxHEIGHT in pixels, multiples of 16 or, for Qwen-Image-2.1, of 32";
inline constexpr const char* kSizeDefault = "the model's, 1024x1024 for Qwen-Image";
inline constexpr const char* kSizeDefaultOfEdits = "the input's ratio at the model's area, 1024x1024";

// Calls `use` with the member that a field declares; its overloads are by type.
template <typename Request, typename Use>
decltype(auto) VisitValue(const Field& field, Request& request, Use&& use) {
  return std::visit([&](auto member) -> decltype(auto) { return use(request.*member); }, field.member);
}

template <typename... Uses>
struct ByType : Uses... {
  using Uses::operator()...;
};
template <typename... Uses>
ByType(Uses...) -> ByType<Uses...>;

// Pictures, masks and noise: each surface has its own way to bring them.
bool IsData(const Field& field);
// Data, and settings that change a picture that was given. They are checked after all others.
bool ConcernsPictures(const Field& field);
bool IsDefault(const Field& field, const GenerateRequest& request);
void Reset(const Field& field, GenerateRequest& request);
void Copy(const Field& field, const GenerateRequest& from, GenerateRequest& to);

// The request without pictures, masks and noise, which are large.
GenerateRequest WithoutData(const GenerateRequest& request);

// "--negative-prompt", "--no-blend"
std::string FlagOf(const Field& field);
// Of a flag that is on by default, the command line has its opposite.
bool IsOnByDefault(const Field& field);

// Throws Error kUsage for the first number outside of what its field declares.
void CheckRanges(const GenerateRequest& request);

}  // namespace qwen_image::options

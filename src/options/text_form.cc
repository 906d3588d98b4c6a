#include "options/text_form.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "options/names.h"

namespace qwen_image::options {
namespace {

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == text.npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// A value of one type, or none.
struct TextReader {
  const Field& field;
  std::string_view text, called;

  [[noreturn]] void Refuse() const {
    Fail(ErrorKind::kUsage, "{} must be {}, not {}", called, KindOf(field), Quoted(text));
  }

  int64_t Whole() const {
    const bool negative = text.starts_with('-');
    const std::string_view digits = text.substr(negative || text.starts_with('+') ? 1 : 0);
    if (digits.size() > 1 && digits.starts_with('0') && digits.find_first_not_of("0123456789") == digits.npos)
      Fail(ErrorKind::kUsage, "{} is {}: write the number without a leading zero", called, Quoted(text));
    const auto value = ParseWhole(digits);
    if (!value || *value > static_cast<uint64_t>(INT64_MAX)) Refuse();
    return negative ? -static_cast<int64_t>(*value) : static_cast<int64_t>(*value);
  }

  double Number() const {
    const auto value = ParseNumber(text);
    if (!value) Refuse();
    return *value;
  }

  std::string Text() const {
    if (!IsUtf8(text))
      Fail(ErrorKind::kUsage, "{} is not valid UTF-8: {}", field.subject ? field.subject : called,
           Quoted(text));
    return std::string(text);
  }

  void operator()(std::string& value) const { value = Text(); }
  void operator()(std::optional<std::string>& value) const { value = Text(); }
  void operator()(int64_t& value) const { value = Whole(); }
  void operator()(std::optional<int64_t>& value) const { value = Whole(); }
  void operator()(uint64_t& value) const { value = ParseSeed(text); }
  void operator()(double& value) const { value = Number(); }
  void operator()(std::optional<double>& value) const { value = Number(); }
  void operator()(std::vector<double>& value) const { value = ParseNumbers(text); }
  void operator()(Margins& value) const { value = ParseMargins(text); }
  void operator()(std::filesystem::path& value) const { value = text; }
  void operator()(bool& value) const {
    if (text != "true" && text != "false" && text != "1" && text != "0") Refuse();
    value = text == "true" || text == "1";
  }
  void operator()(GenerateRequest::Tiling& value) const {
    const auto named = ParseName<GenerateRequest::Tiling>(text);
    if (!named) Refuse();
    value = *named;
  }
  template <typename Data>
  void operator()(Data&) const {
    Fail(ErrorKind::kUsage, "{} is {}, which cannot be given as text", called, KindOf(field));
  }
};

std::string WithRange(const Field& field, const char* kind) {
  if (!field.least || !field.most) return kind;
  return fmt::format("{} from {} to {}", kind, *field.least, *field.most);
}

}  // namespace

void SetFromText(const Field& field, std::string_view text, std::string_view called,
                 GenerateRequest& request) {
  VisitValue(field, request, TextReader{field, text, called});
}

std::string KindOf(const Field& field) {
  const GenerateRequest request;
  return VisitValue(
      field, request,
      ByType{[](const std::string&) -> std::string { return "text"; },
             [](const std::optional<std::string>&) -> std::string { return "text"; },
             [](bool) -> std::string { return "true or false"; },
             [&](int64_t) -> std::string { return WithRange(field, "a whole number"); },
             [&](const std::optional<int64_t>&) -> std::string { return WithRange(field, "a whole number"); },
             [](uint64_t) -> std::string { return "a whole number from 0 to 2^64 - 1, or random"; },
             [&](double) -> std::string { return WithRange(field, "a number"); },
             [&](const std::optional<double>&) -> std::string { return WithRange(field, "a number"); },
             [](const std::vector<double>&) -> std::string { return "a list of numbers"; },
             [](GenerateRequest::Tiling) {
               return fmt::format("{}", fmt::join(AllNames<GenerateRequest::Tiling>(), ", "));
             },
             [](const Margins&) -> std::string { return "four margins: left, top, right, bottom"; },
             [](const std::filesystem::path&) -> std::string { return "a folder"; },
             [](const std::optional<InitialLatents>&) -> std::string { return "an array of floats (.npy)"; },
             [](const std::vector<Image>&) -> std::string { return "a list of pictures"; },
             [](const std::optional<Image>&) -> std::string { return "a picture"; },
             [](const std::optional<GreyImage>&) -> std::string { return "a picture"; }});
}

std::vector<double> ParseNumbers(std::string_view text) {
  std::vector<double> numbers;
  for (const std::string_view part : SplitAtCommas(text)) {
    const auto number = ParseNumber(part);
    if (!number)
      Fail(ErrorKind::kUsage,
           "{} are not noise levels; write numbers with commas between them, for example 1,0.9,0.5",
           Quoted(text));
    numbers.push_back(*number);
  }
  return numbers;
}

std::string NumbersText(const std::vector<double>& list) { return fmt::format("{}", fmt::join(list, ",")); }

Margins ParseMargins(std::string_view text) {
  const std::vector<std::string_view> parts = SplitAtCommas(text);
  std::vector<int64_t> sides;
  for (const std::string_view part : parts) {
    const auto side = ParseWhole(part);
    if (side && *side <= uint64_t{kHugeSide}) sides.push_back(static_cast<int64_t>(*side));
  }
  const bool all = parts.size() == 4 && sides.size() == 4;
  const Margins margins = all ? Margins{sides[0], sides[1], sides[2], sides[3]} : Margins{};
  if (!margins.any())
    Fail(ErrorKind::kUsage,
         "{} are not margins; write LEFT,TOP,RIGHT,BOTTOM in pixels, for example 0,64,0,64", Quoted(text));
  return margins;
}

std::string MarginsText(const Margins& m) {
  return fmt::format("{},{},{},{}", m.left, m.top, m.right, m.bottom);
}

bool IsRandomSeed(std::string_view text) { return text == "random" || text == "-1"; }

uint64_t ParseSeed(std::string_view text) {
  if (IsRandomSeed(text)) return std::random_device{}();
  const auto seed = ParseWhole(text);
  if (!seed)
    Fail(ErrorKind::kUsage, "{} is not a seed; give a whole number from 0 to 2^64 - 1, or random",
         Quoted(text));
  return *seed;
}

}  // namespace qwen_image::options

#include "options/python_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "options/names.h"

namespace qwen_image::options {
namespace {

// Of a parameter of Pipeline.generate.
struct PythonType {
  std::string annotation;
  std::string default_value;
};

std::string BoolText(bool value) { return value ? "True" : "False"; }

PythonType TypeOf(const Field& field) {
  static const GenerateRequest kDefault;
  const auto or_none = [](const char* type) -> PythonType {
    return {fmt::format("{} | None", type), "None"};
  };
  return VisitValue(field, kDefault,
                    ByType{[&](const std::string& v) {
                             return v.empty() ? or_none("str") : PythonType{"str", fmt::format("\"{}\"", v)};
                           },
                           [&](const std::optional<std::string>&) { return or_none("str"); },
                           [](bool v) -> PythonType {
                             return {"bool", BoolText(v)};
                           },
                           [](int64_t v) -> PythonType {
                             return {"int", fmt::format("{}", v)};
                           },
                           [&](const std::optional<int64_t>&) { return or_none("int"); },
                           [](uint64_t v) -> PythonType {
                             return {"int", fmt::format("{}", v)};
                           },
                           [](double v) -> PythonType {
                             return {"float", fmt::format("{:.1f}", v)};
                           },
                           [&](const std::optional<double>&) { return or_none("float"); },
                           [&](const std::vector<double>&) { return or_none("Sequence[float]"); },
                           [](GenerateRequest::Tiling v) -> PythonType {
                             return {"str", fmt::format("\"{}\"", NameOf(v))};
                           },
                           [&](const Margins&) { return or_none("tuple[int, int, int, int]"); },
                           [&](const std::filesystem::path&) { return or_none("PathLike"); },
                           [&](const std::optional<InitialLatents>&) { return or_none("np.ndarray"); },
                           [](const std::vector<Image>&) -> PythonType {
                             return {"Sequence[AnyPicture]", "()"};
                           },
                           [&](const std::optional<Image>&) { return or_none("AnyPicture"); },
                           [&](const std::optional<GreyImage>&) { return or_none("AnyPicture"); }});
}

// These may be given without their names, in this order, which no later option may change.
constexpr const char* kPositional[] = {"prompt", "negative_prompt", "width", "height", "steps", "cfg",
                                       "seed"};

std::string ParameterOf(const Field& field) {
  const PythonType type = TypeOf(field);
  if (field.name == std::string_view("prompt")) return "        prompt: str,\n";
  return fmt::format("        {}: {} = {},\n", field.name, type.annotation, type.default_value);
}

}  // namespace

std::string PythonParameters() {
  std::string text;
  for (const char* name : kPositional) text += ParameterOf(*FindField(name));
  text += "        *,\n";
  for (const Field& field : Fields()) {
    const bool done = std::find(std::begin(kPositional), std::end(kPositional),
                                std::string_view(field.name)) != std::end(kPositional);
    if (!done && !field.not_in.python) text += ParameterOf(field);
  }
  return text;
}

}  // namespace qwen_image::options

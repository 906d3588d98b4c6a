#include "options/python_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "options/names.h"

namespace qwen_image::options {
namespace {

struct PythonType {
  const char* kind;           // see PythonKindOf
  std::string parameter;      // its annotation in Pipeline.generate
  std::string default_value;  // there
  std::string stub;           // its annotation in _core.pyi
};

std::string BoolText(bool value) { return value ? "True" : "False"; }

PythonType TypeOf(const Field& field) {
  static const GenerateRequest kDefault;
  return VisitValue(field, kDefault,
                    ByType{[](const std::string& v) -> PythonType {
                             return v.empty() ? PythonType{"text?", "str | None", "None", "str"}
                                              : PythonType{"text", "str", fmt::format("\"{}\"", v), "str"};
                           },
                           [](const std::optional<std::string>&) -> PythonType {
                             return {"text?", "str | None", "None", "Optional[str]"};
                           },
                           [](bool v) -> PythonType {
                             return {"truth", "bool", BoolText(v), "bool"};
                           },
                           [](int64_t v) -> PythonType {
                             return {"whole", "int", fmt::format("{}", v), "int"};
                           },
                           [](const std::optional<int64_t>&) -> PythonType {
                             return {"whole?", "int | None", "None", "Optional[int]"};
                           },
                           [](uint64_t v) -> PythonType {
                             return {"seed", "int", fmt::format("{}", v), "int"};
                           },
                           [](double v) -> PythonType {
                             return {"number", "float", fmt::format("{:.1f}", v), "float"};
                           },
                           [](const std::optional<double>&) -> PythonType {
                             return {"number?", "float | None", "None", "Optional[float]"};
                           },
                           [](const std::vector<double>&) -> PythonType {
                             return {"numbers_of?", "Sequence[float] | None", "None", "list[float]"};
                           },
                           [](GenerateRequest::Tiling v) -> PythonType {
                             return {"tiling", "str", fmt::format("\"{}\"", NameOf(v)), "Tiling"};
                           },
                           [](const Margins&) -> PythonType {
                             return {"margins?", "tuple[int, int, int, int] | None", "None", "Sequence[int]"};
                           },
                           [](const std::filesystem::path&) -> PythonType {
                             return {"path?", "PathLike | None", "None", "_Path"};
                           },
                           [](const std::optional<InitialLatents>&) -> PythonType {
                             return {"floats?", "np.ndarray | None", "None", "np.ndarray"};
                           },
                           [](const std::vector<Image>&) -> PythonType {
                             return {"pictures", "Sequence[AnyPicture]", "()", "Sequence[np.ndarray]"};
                           },
                           [](const std::optional<Image>&) -> PythonType {
                             return {"picture?", "AnyPicture | None", "None", "np.ndarray"};
                           },
                           [](const std::optional<GreyImage>&) -> PythonType {
                             return {"mask?", "AnyPicture | None", "None", "np.ndarray"};
                           }});
}

// These may be given without their names, in this order, which no later option may change.
constexpr const char* kPositional[] = {"prompt", "negative_prompt", "width", "height", "steps", "cfg",
                                       "seed"};

std::string ParameterOf(const Field& field) {
  const PythonType type = TypeOf(field);
  if (field.name == std::string_view("prompt")) return "        prompt: str,\n";
  return fmt::format("        {}: {} = {},\n", field.name, type.parameter, type.default_value);
}

}  // namespace

std::string PythonKindOf(const Field& field) {
  return field.name == std::string_view("prompt") ? "text" : TypeOf(field).kind;
}

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

std::string PythonStubs() {
  std::string text;
  for (const Field& field : Fields()) text += fmt::format("    {}: {}\n", field.name, TypeOf(field).stub);
  return text;
}

}  // namespace qwen_image::options

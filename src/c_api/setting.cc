// Settings by their names, for C.
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "files/text.h"
#include "options/json_form.h"
#include "options/names.h"
#include "options/text_form.h"

using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::GenerateRequest;
using qwen_image::Guarded;
using qwen_image::Json;
using qwen_image::Need;
using qwen_image::NeedText;
using qwen_image::options::Field;

namespace {

const Field& NeedField(const char* name) {
  const Field* field = qwen_image::options::FindField(NeedText(name, "name"));
  if (!field || field->not_in.c)
    Fail(ErrorKind::kUsage, "there is no setting {}; see qwen_image_setting_name", qwen_image::Quoted(name));
  return *field;
}

const Field* FieldAt(int64_t index) {
  const auto fields = qwen_image::options::Fields();
  return index >= 0 && index < std::ssize(fields) ? &fields[static_cast<size_t>(index)] : nullptr;
}

// As the type of the field has it, if it can.
Json JsonOf(const Field& field, double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::holds_alternative<bool GenerateRequest::*>(field.member)) return value != 0;
  const bool whole = value >= 0 && value <= kExact && value == std::floor(value);
  if (std::holds_alternative<uint64_t GenerateRequest::*>(field.member) && whole)
    return static_cast<uint64_t>(value);
  return value;
}

const char* KindName(const Field& field) {
  static const GenerateRequest kDefault;
  return qwen_image::options::VisitValue(
      field, kDefault,
      qwen_image::options::ByType{
          [](const std::string&) { return "text"; }, [](const std::optional<std::string>&) { return "text"; },
          [](bool) { return "truth"; }, [](int64_t) { return "whole"; },
          [](const std::optional<int64_t>&) { return "whole"; }, [](uint64_t) { return "seed"; },
          [](double) { return "number"; }, [](const std::optional<double>&) { return "number"; },
          [](const std::vector<double>&) { return "numbers"; },
          [](GenerateRequest::Tiling) { return "choice"; },
          [](const qwen_image::Margins&) { return "margins"; },
          [](const std::filesystem::path&) { return "path"; },
          [](const std::optional<qwen_image::InitialLatents>&) { return "latents"; },
          [](const std::vector<qwen_image::Image>&) { return "pictures"; },
          [](const std::optional<qwen_image::Image>&) { return "picture"; },
          [](const std::optional<qwen_image::GreyImage>&) { return "mask"; }});
}

}  // namespace

qwen_image_status qwen_image_request_set(qwen_image_request* request, const char* name, const char* value) {
  return qwen_image_request_set_text(request, name, value,
                                     value ? static_cast<int64_t>(std::strlen(value)) : 0);
}

qwen_image_status qwen_image_request_set_text(qwen_image_request* request, const char* name,
                                              const char* value, int64_t size) {
  return Guarded([&] {
    const Field& field = NeedField(name);
    if (size < 0) Fail(ErrorKind::kUsage, "{} has a size of {} bytes", name, size);
    const std::string_view text(NeedText(value, "value"), static_cast<size_t>(size));
    qwen_image::options::SetFromText(field, text, name, Need(request, "request").request);
  });
}

qwen_image_status qwen_image_request_set_number(qwen_image_request* request, const char* name, double value) {
  return Guarded([&] {
    const Field& field = NeedField(name);
    const std::string allowed =
        qwen_image::options::SetFromJson(field, JsonOf(field, value), {}, Need(request, "request").request);
    if (!allowed.empty()) Fail(ErrorKind::kUsage, "{} must be {}, not {}", name, allowed, value);
  });
}

int64_t qwen_image_setting_count(void) { return std::ssize(qwen_image::options::Fields()); }

const char* qwen_image_setting_name(int64_t index) {
  const Field* field = FieldAt(index);
  return field ? field->name : "";
}

const char* qwen_image_setting_help(int64_t index) {
  const Field* field = FieldAt(index);
  return field ? field->help : "";
}

const char* qwen_image_setting_kind(int64_t index) {
  const Field* field = FieldAt(index);
  return field ? KindName(*field) : "";
}

const char* qwen_image_setting_choices(int64_t index) {
  const Field* field = FieldAt(index);
  if (!field || !std::holds_alternative<GenerateRequest::Tiling GenerateRequest::*>(field->member)) return "";
  static const std::string tilings =
      fmt::format("{}", fmt::join(qwen_image::AllNames<GenerateRequest::Tiling>(), ", "));
  return tilings.c_str();
}

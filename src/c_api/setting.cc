// Settings by their names, for C.
#include <cmath>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "files/text.h"
#include "options/json_form.h"
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

}  // namespace

qwen_image_status qwen_image_request_set(qwen_image_request* request, const char* name, const char* value) {
  return Guarded([&] {
    const Field& field = NeedField(name);
    const char* text = NeedText(value, "value");
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

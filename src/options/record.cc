#include "options/record.h"

#include "core/fail.h"
#include "options/json_form.h"
#include "options/text_form.h"

namespace qwen_image::options {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

// Records of version 0.1 say "no_blend", and have margins as text.
Json OlderValue(const Field& field, const Json& record) {
  if (field.name == std::string_view("blend") && record.contains("no_blend")) {
    const Json& off = record["no_blend"];
    return off.is_boolean() ? Json(!off.get<bool>()) : off;
  }
  const auto value = record.find(field.name);
  if (value == record.end()) return nullptr;
  if (!std::holds_alternative<Margins GenerateRequest::*>(field.member) || !value->is_string()) return *value;
  const Margins m = ParseMargins(value->get_ref<const std::string&>());
  return {m.left, m.top, m.right, m.bottom};
}

// `steps` and `sigmas` both say the number of steps: the one that is given counts.
bool SaysSteps(const Field& field) {
  return field.name == std::string_view("steps") || field.name == std::string_view("sigmas");
}

bool SaysSize(const Field& field) {
  return field.name == std::string_view("width") || field.name == std::string_view("height");
}

}  // namespace

void WriteRecord(const GenerateRequest& drawn, Json& record) {
  for (const Field& field : Fields()) {
    const bool always = field.recorded == Recorded::kRequired || field.recorded == Recorded::kAlways;
    if (always || (field.recorded == Recorded::kIfSet && !IsDefault(field, drawn)))
      record[field.name] = ToJson(field, drawn);
  }
}

void ReadRecord(const Json& record, const std::string& where, NameSet& given, GenerateRequest& request) {
  const bool steps_given = given.contains("steps") || given.contains("sigmas");
  const bool size_given = given.contains(kSizeName);
  const bool has_size = record.contains(kSizeName);
  for (const Field& field : Fields()) {
    if (field.recorded == Recorded::kAsName || field.recorded == Recorded::kNever ||
        given.contains(field.name))
      continue;
    if ((steps_given && SaysSteps(field)) || ((size_given || has_size) && SaysSize(field))) continue;
    const Json value = OlderValue(field, record);
    if (value.is_null()) {
      if (field.recorded == Recorded::kRequired)
        Fail(ErrorKind::kBadInput, "{}: \"{}\" is missing", where, field.name);
      continue;
    }
    const std::string allowed = SetFromJson(field, value, {.most = kMost}, request);
    if (!allowed.empty()) Fail(ErrorKind::kBadInput, "{}: \"{}\" is not {}", where, field.name, allowed);
    given.insert(field.name);
  }
}

}  // namespace qwen_image::options

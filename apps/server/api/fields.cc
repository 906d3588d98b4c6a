#include "server/api/fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::api {
namespace {

// Far more than any request needs, scripts of other tools' among its fields, and a few hundred kilobytes.
constexpr size_t kMaxValues = 5'000;

// A value as it came, fit for a message.
std::string Shown(const Json& value) {
  constexpr size_t kMost = 60;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return '"' + Printable(text, kMost) + '"';
  }
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  return Printable(value.dump(), kMost);
}

}  // namespace

Json ParseBody(std::string_view body) {
  if (body.empty()) Fail(ErrorKind::kUsage, "the request has no body; a JSON object is expected");
  Json json;
  try {
    json = ParseJson(body, "the body of the request", kMaxValues);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, error.message());
  }
  if (!json.is_object())
    Fail(ErrorKind::kUsage, "the body of the request is {}; a JSON object is expected", Shown(json));
  return json;
}

void CheckText(const std::string& name, std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes)
    throw FieldError(name,
                     fmt::format("{} has {} bytes; at most {} are taken", name, text.size(), max_bytes));
  if (!IsUtf8(text)) throw FieldError(name, fmt::format("{} is not valid UTF-8: {}", name, Quoted(text)));
  if (const size_t nul = text.find('\0'); nul != text.npos)
    throw FieldError(name, fmt::format("{} holds a NUL character, at byte {}; text has none", name, nul));
}

Fields::Fields(const Json& body) : body_(body) {
  if (!body.is_object()) Fail(ErrorKind::kUsage, "a request is a JSON object, not {}", Shown(body));
}

const Json* Fields::Find(const std::string& name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> Fields::Text(const std::string& name, size_t max_bytes) const {
  const Json* value = Find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) Refuse(name, "text");
  const auto& text = value->get_ref<const std::string&>();
  CheckText(name, text, max_bytes);
  return text;
}

std::optional<int64_t> Fields::Whole(const std::string& name, int64_t least, int64_t most) const {
  const Json* value = Find(name);
  if (!value) return std::nullopt;
  const std::string allowed = fmt::format("a whole number from {} to {}", least, most);
  if (!value->is_number()) Refuse(name, allowed);
  const auto number = value->get<double>();  // exact where it matters: limits are far below 2^53
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
      number != std::floor(number))
    Refuse(name, allowed);
  return static_cast<int64_t>(number);
}

std::optional<double> Fields::Number(const std::string& name) const {
  const Json* value = Find(name);
  if (!value) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) Refuse(name, "a finite number");
  return value->get<double>();
}

std::optional<bool> Fields::Flag(const std::string& name) const {
  const Json* value = Find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) Refuse(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::OneOf(const std::string& name,
                                         std::initializer_list<std::string_view> allowed) const {
  const Json* value = Find(name);
  if (!value) return std::nullopt;
  if (value->is_string() &&
      std::find(allowed.begin(), allowed.end(), value->get<std::string>()) != allowed.end())
    return value->get<std::string>();
  Refuse(name, fmt::format("{}", fmt::join(allowed, " or ")));
}

void Fields::Refuse(const std::string& name, const std::string& allowed) const {
  const Json* value = Find(name);
  throw FieldError(name,
                   fmt::format("{} must be {}, not {}", name, allowed, value ? Shown(*value) : "absent"));
}

void Fields::RefuseUnknown(const std::vector<std::string_view>& known) const {
  for (const auto& [name, value] : body_.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw FieldError(
          name, fmt::format("the field {} is not known; known are {}", Quoted(name), fmt::join(known, ", ")));
  }
}

}  // namespace qwen_image::api

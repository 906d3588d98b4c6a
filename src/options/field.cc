#include "options/field.h"

#include <algorithm>

#include "core/fail.h"

namespace qwen_image::options {
namespace {

std::string SubjectOf(const Field& field) { return field.subject ? field.subject : field.name; }

// NaN is in no range.
void CheckRange(const Field& field, double value, const char* kind) {
  const bool least = !field.least || value >= *field.least, most = !field.most || value <= *field.most;
  if ((!field.least && !field.most) || (least && most && value == value)) return;
  const std::string means = field.least_means ? fmt::format(" ({})", field.least_means) : "";
  Fail(ErrorKind::kUsage, "{} must be {}from {}{} to {}, not {}", SubjectOf(field), kind,
       field.least.value_or(0), means, field.most.value_or(0), value);
}

}  // namespace

const Field* FindField(std::string_view name) {
  for (const Field& field : Fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

bool IsData(const Field& field) {
  return std::holds_alternative<std::optional<InitialLatents> GenerateRequest::*>(field.member) ||
         std::holds_alternative<std::vector<Image> GenerateRequest::*>(field.member) ||
         std::holds_alternative<std::optional<Image> GenerateRequest::*>(field.member) ||
         std::holds_alternative<std::optional<GreyImage> GenerateRequest::*>(field.member);
}

bool ConcernsPictures(const Field& field) {
  return IsData(field) || std::holds_alternative<Margins GenerateRequest::*>(field.member);
}

bool IsDefault(const Field& field, const GenerateRequest& request) {
  static const GenerateRequest kDefault;
  return std::visit(
      [&](auto member) {
        return ByType{[](const Margins& margins, const Margins&) { return !margins.any(); },
                      [](const std::vector<Image>& images, const auto&) { return images.empty(); },
                      [](const std::optional<Image>& image, const auto&) { return !image; },
                      [](const std::optional<GreyImage>& mask, const auto&) { return !mask; },
                      [](const std::optional<InitialLatents>& latents, const auto&) { return !latents; },
                      [](const auto& value, const auto& default_value) { return value == default_value; }}(
            request.*member, kDefault.*member);
      },
      field.member);
}

void Reset(const Field& field, GenerateRequest& request) { Copy(field, GenerateRequest(), request); }

void Copy(const Field& field, const GenerateRequest& from, GenerateRequest& to) {
  std::visit([&](auto member) { to.*member = from.*member; }, field.member);
}

GenerateRequest WithoutData(const GenerateRequest& request) {
  GenerateRequest rest;
  for (const Field& field : Fields()) {
    if (!IsData(field)) Copy(field, request, rest);
  }
  return rest;
}

bool IsOnByDefault(const Field& field) {
  const auto* flag = std::get_if<bool GenerateRequest::*>(&field.member);
  return flag && GenerateRequest().**flag;
}

std::string FlagOf(const Field& field) {
  std::string flag = field.command_line.flag ? field.command_line.flag : field.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return fmt::format("--{}{}", IsOnByDefault(field) ? "no-" : "", flag);
}

void CheckRanges(const GenerateRequest& request) {
  for (const Field& field : Fields()) {
    VisitValue(field, request,
               ByType{[&](double value) { CheckRange(field, value, "a number "); },
                      [&](const std::optional<double>& value) {
                        if (value) CheckRange(field, *value, "a number ");
                      },
                      [&](int64_t value) { CheckRange(field, static_cast<double>(value), ""); },
                      [&](const std::optional<int64_t>& value) {
                        if (value) CheckRange(field, static_cast<double>(*value), "");
                      },
                      [](const auto&) {}});
  }
}

}  // namespace qwen_image::options

#include "options/json_form.h"

#include <fmt/ranges.h>

#include <cmath>
#include <random>

#include "files/numbers.h"
#include "options/names.h"
#include "options/text_form.h"

namespace qwen_image::options {
namespace {

constexpr const char* kMargins =
    "a list of four whole numbers: pixels to add at the left, top, right, bottom";

bool IsFinite(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

// Each returns what is allowed, or nothing if the value was taken.
struct JsonReader {
  const Field& field;
  const Json& json;
  const JsonRules& rules;

  std::string Whole(auto& value) const {  // 20 and 20.0
    const auto least = static_cast<int64_t>(field.least.value_or(1));
    const int64_t most =
        rules.most.value_or(field.most ? static_cast<int64_t>(*field.most) : rules.most_undeclared);
    const std::string allowed = fmt::format("a whole number from {} to {}", least, most);
    if (!json.is_number()) return allowed;
    const auto number = json.get<double>();  // exact where it matters: limits are far below 2^53
    if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
        number != std::floor(number))
      return allowed;
    value = static_cast<int64_t>(number);
    return "";
  }

  std::string Text(auto& value) const {
    if (!json.is_string()) return "text";
    value = json.get<std::string>();
    return "";
  }

  std::string Number(auto& value) const {  // the pipeline knows the range
    if (!IsFinite(json)) return "a finite number";
    value = json.get<double>();
    return "";
  }

  std::string operator()(std::string& value) const { return Text(value); }
  std::string operator()(std::optional<std::string>& value) const { return Text(value); }
  std::string operator()(std::filesystem::path& value) const { return Text(value); }
  std::string operator()(int64_t& value) const { return Whole(value); }
  std::string operator()(std::optional<int64_t>& value) const { return Whole(value); }
  std::string operator()(double& value) const { return Number(value); }
  std::string operator()(std::optional<double>& value) const { return Number(value); }

  std::string operator()(bool& value) const {
    if (!json.is_boolean()) return "true or false";
    value = json.get<bool>();
    return "";
  }

  std::string operator()(uint64_t& value) const {
    const bool is_signed = json.is_number_integer() && !json.is_number_unsigned();
    if (json.is_number_unsigned() || (is_signed && json.get<int64_t>() >= 0)) {
      value = json.get<uint64_t>();
      return "";
    }
    const bool drawn = json == "random" || (is_signed && json.get<int64_t>() == -1);
    if (!drawn || !rules.seed_may_be_drawn)
      return rules.seed_may_be_drawn ? "a whole number from 0 to 2^64 - 1, or -1 or \"random\""
                                     : "a whole number from 0 to 2^64 - 1";
    value = std::random_device{}();
    return "";
  }

  std::string operator()(std::vector<double>& value) const {
    const auto most = static_cast<size_t>(rules.most.value_or(1000));
    const std::string allowed = fmt::format("a list of 1 to {} finite numbers", most);
    if (!json.is_array() || json.empty() || json.size() > most) return allowed;
    std::vector<double> numbers;
    for (const Json& number : json) {
      if (!IsFinite(number)) return allowed;
      numbers.push_back(number.get<double>());
    }
    value = std::move(numbers);
    return "";
  }

  std::string operator()(GenerateRequest::Tiling& value) const {
    const auto named =
        json.is_string() ? ParseName<GenerateRequest::Tiling>(json.get<std::string>()) : std::nullopt;
    if (!named) return fmt::format("{}", fmt::join(AllNames<GenerateRequest::Tiling>(), " or "));
    value = *named;
    return "";
  }

  std::string operator()(Margins& value) const {
    if (!json.is_array() || json.size() != 4) return kMargins;
    int64_t sides[4];
    for (size_t i = 0; i < 4; ++i) {
      const Json& side = json[i];
      if (!side.is_number_integer() || side > kHugeSide || side < 0) return kMargins;
      sides[i] = side.get<int64_t>();
    }
    value = {sides[0], sides[1], sides[2], sides[3]};
    return "";
  }

  template <typename Data>
  std::string operator()(Data&) const {
    return KindOf(field);
  }
};

}  // namespace

std::string SetFromJson(const Field& field, const Json& value, const JsonRules& rules,
                        GenerateRequest& request) {
  return VisitValue(field, request, JsonReader{field, value, rules});
}

Json ToJson(const Field& field, const GenerateRequest& request) {
  if (IsData(field)) return nullptr;
  return VisitValue(
      field, request,
      ByType{[](const std::optional<std::string>& v) { return v ? Json(*v) : Json(); },
             [](const std::optional<int64_t>& v) { return v ? Json(*v) : Json(); },
             [](const std::optional<double>& v) { return v ? Json(*v) : Json(); },
             [](GenerateRequest::Tiling v) { return Json(NameOf(v)); },
             [](const Margins& m) {
               return Json({m.left, m.top, m.right, m.bottom});
             },
             [](const std::filesystem::path& v) { return Json(v.string()); },
             [](const std::string& v) { return Json(v); },
             [](const std::vector<double>& v) { return Json(v); }, [](bool v) { return Json(v); },
             [](int64_t v) { return Json(v); }, [](uint64_t v) { return Json(v); },
             [](double v) { return Json(v); }, [](const auto&) { return Json(); }});
}

}  // namespace qwen_image::options

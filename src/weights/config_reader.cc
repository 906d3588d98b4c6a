#include "weights/config_reader.h"

#include <cmath>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

int64_t CheckedInt(const Json& value, int64_t min, int64_t max, const std::string& where,
                   const std::string& key) {
  // Some writers store whole numbers as 2.0; a huge unsigned number must not wrap.
  double number = std::nan("");
  if (value.is_number()) number = value.get<double>();
  if (!(number >= static_cast<double>(min) && number <= static_cast<double>(max)) ||
      number != std::floor(number)) {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected a whole number from {} to {}", where, key,
         ShownValue(value), min, max);
  }
  return static_cast<int64_t>(number);
}

double CheckedNumber(const Json& value, const std::string& where, const std::string& key) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected a finite number", where, key, ShownValue(value));
  }
  return value.get<double>();
}

}  // namespace

std::string ShownValue(const Json& value) {
  return value.is_structured() ? value.type_name() : Printable(value.dump(), 80);
}

double CheckPositive(double value, const std::string& where, const std::string& key) {
  const auto computed_with = static_cast<float>(value);
  if (computed_with > 0 && std::isfinite(computed_with)) return value;
  Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected a number above 0 that fits into 32 bits", where, key,
       value);
}

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) Fail(ErrorKind::kBadInput, "{}: expected a JSON object", where_);
}

bool ConfigReader::Has(const std::string& key) const {
  const auto it = object_.find(key);
  return it != object_.end() && !it->is_null();
}

const Json& ConfigReader::Get(const std::string& key) const {
  if (!Has(key)) Fail(ErrorKind::kBadInput, "{}: \"{}\" is missing", where_, key);
  return object_.at(key);
}

const Json& ConfigReader::Array(const std::string& key) const {
  constexpr size_t kMaxEntries = 64;
  const Json& value = Get(key);
  if (!value.is_array() || value.size() > kMaxEntries) {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is not a list of at most {} values", where_, key, kMaxEntries);
  }
  return value;
}

ConfigReader ConfigReader::Object(const std::string& key) const {
  return ConfigReader(Get(key), where_ + ": " + key);
}

int64_t ConfigReader::Int(const std::string& key, int64_t min, int64_t max) const {
  return CheckedInt(Get(key), min, max, where_, key);
}

int64_t ConfigReader::Int(const std::string& key, int64_t min, int64_t max, int64_t fallback) const {
  return Has(key) ? Int(key, min, max) : fallback;
}

double ConfigReader::Number(const std::string& key) const { return CheckedNumber(Get(key), where_, key); }

double ConfigReader::Number(const std::string& key, double fallback) const {
  return Has(key) ? Number(key) : fallback;
}

double ConfigReader::Positive(const std::string& key, double fallback) const {
  return CheckPositive(Number(key, fallback), where_, key);
}

bool ConfigReader::Bool(const std::string& key, bool fallback) const {
  if (!Has(key)) return fallback;
  const Json& value = Get(key);
  if (!value.is_boolean())
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected true or false", where_, key, ShownValue(value));
  return value.get<bool>();
}

std::string ConfigReader::String(const std::string& key, const std::string& fallback) const {
  if (!Has(key)) return fallback;
  const Json& value = Get(key);
  if (!value.is_string())
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected a string", where_, key, ShownValue(value));
  return value.get<std::string>();
}

std::vector<int64_t> ConfigReader::Ints(const std::string& key, int64_t min, int64_t max) const {
  std::vector<int64_t> values;
  for (const Json& value : Array(key)) values.push_back(CheckedInt(value, min, max, where_, key));
  return values;
}

std::vector<double> ConfigReader::Numbers(const std::string& key) const {
  std::vector<double> values;
  for (const Json& value : Array(key)) values.push_back(CheckedNumber(value, where_, key));
  return values;
}

std::vector<bool> ConfigReader::Bools(const std::string& key) const {
  std::vector<bool> values;
  for (const Json& value : Array(key)) {
    if (!value.is_boolean())
      Fail(ErrorKind::kBadInput, "{}: \"{}\" holds {}, expected true or false", where_, key,
           ShownValue(value));
    values.push_back(value.get<bool>());
  }
  return values;
}

}  // namespace qwen_image

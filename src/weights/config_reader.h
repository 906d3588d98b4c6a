// ConfigReader: typed, range-checked fields of a JSON config. Errors name the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "files/json.h"

namespace qwen_image {

class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string where);  // throws Error kBadInput unless `object` is an object

  bool Has(const std::string& key) const;  // there and not null
  ConfigReader Object(const std::string& key) const;

  int64_t Int(const std::string& key, int64_t min, int64_t max) const;
  int64_t Int(const std::string& key, int64_t min, int64_t max, int64_t fallback) const;
  double Number(const std::string& key) const;  // finite
  double Number(const std::string& key, double fallback) const;
  double Positive(const std::string& key, double fallback) const;  // finite and above 0
  bool Bool(const std::string& key, bool fallback) const;
  std::string String(const std::string& key, const std::string& fallback) const;
  std::vector<int64_t> Ints(const std::string& key, int64_t min, int64_t max) const;  // 1 to 64 of them
  std::vector<double> Numbers(const std::string& key) const;
  std::vector<bool> Bools(const std::string& key) const;

  const std::string& where() const { return where_; }

 private:
  const Json& Get(const std::string& key) const;
  const Json& Array(const std::string& key) const;

  const Json& object_;
  std::string where_;
};

// A value that is not as expected, as a message shows it.
std::string ShownValue(const Json& value);

// The value, for the same from elsewhere (GGUF's metadata). Throws Error kBadInput unless it is above 0
// as the 32-bit float that is computed with.
double CheckPositive(double value, const std::string& where, const std::string& key);

}  // namespace qwen_image

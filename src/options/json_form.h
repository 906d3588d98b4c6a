// Settings as JSON: requests of the server, and the records of pictures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "files/json.h"
#include "options/field.h"

namespace qwen_image::options {

struct JsonRules {
  bool seed_may_be_drawn = false;    // -1 and "random" are taken, too
  std::optional<int64_t> most = {};  // of a whole number, or entries of a list
  int64_t most_undeclared = int64_t{1}
                            << 53;  // of whole numbers whose field declares none; doubles are exact up to it
};

// Returns what would be allowed if the value is not, to stand behind "must be": "a whole number from 1 to
// 200". Empty: the value was taken. Data has no form that all share, and is never taken.
std::string SetFromJson(const Field& field, const Json& value, const JsonRules& rules,
                        GenerateRequest& request);

// Null for an optional setting that was not given, and for data.
Json ToJson(const Field& field, const GenerateRequest& request);

}  // namespace qwen_image::options

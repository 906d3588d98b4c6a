// Members of a JSON object that may be missing, or of another kind.
#pragma once

#include <cstdint>
#include <string>

#include "files/json.h"

namespace qwen_image::queue {

inline std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

inline uint64_t NumberIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace qwen_image::queue

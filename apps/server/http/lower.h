// Text without regard to case, as HTTP compares names.
#pragma once

#include <string>
#include <string_view>

namespace qwen_image::http {

// ASCII alone, whatever the locale.
inline std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace qwen_image::http

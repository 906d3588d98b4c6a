// Colours for a terminal, nothing elsewhere.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace qwen_image::cli {

class TextStyle {
 public:
  explicit TextStyle(bool coloured) : coloured_(coloured) {}
  // Colours if stdout is a terminal and the user did not refuse them (https://no-color.org).
  static TextStyle ForStandardOutput() {
    const char* refused = std::getenv("NO_COLOR");
    return TextStyle(isatty(STDOUT_FILENO) && !(refused && *refused));
  }

  std::string Bold(std::string_view text) const { return With("1", text); }
  std::string Dim(std::string_view text) const { return With("2", text); }
  std::string Red(std::string_view text) const { return With("31", text); }
  std::string Yellow(std::string_view text) const { return With("33", text); }
  std::string Green(std::string_view text) const { return With("32", text); }

 private:
  std::string With(std::string_view code, std::string_view text) const {
    if (!coloured_) return std::string(text);
    return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
  }
  bool coloured_;
};

}  // namespace qwen_image::cli

// Printing that ignores errors: a closed terminal or a full disk must not cost a picture.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <string>

namespace qwen_image::cli {

// Whether a full disk has swallowed something that was printed to stdout. The program fails then, when all is
// done; a reader that went away (a closed pipe) is no loss.
inline bool stdout_was_lost = false;

// As fmt::print, but an error of the stream is noted, not thrown; and nothing waits in a buffer.
template <typename... Args>
void Print(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
  if (!written && stream == stdout && errno == ENOSPC) stdout_was_lost = true;
}

}  // namespace qwen_image::cli

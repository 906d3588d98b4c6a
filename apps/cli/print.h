// Printing that carries on when nobody listens: a closed terminal or a full disk must not cost a picture.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace qwen_image {

// As fmt::print, but an error of the stream is ignored, not thrown; and nothing waits in a buffer.
template <typename... Args>
void Print(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace qwen_image

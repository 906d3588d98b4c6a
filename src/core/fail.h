// Fail(kind, format, …): throws an Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include "qwen_image/error.h"

namespace qwen_image {

template <typename... Args>
[[noreturn]] void Fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace qwen_image

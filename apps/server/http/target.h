// What a request asks for: the path and the query of its first line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace qwen_image::http {

struct Target {
  std::string path;                          // as sent: no route has an escape in it
  std::map<std::string, std::string> query;  // decoded; of equal names the first
};

// None: no path of this server ("*", "http://…", escapes that are none).
std::optional<Target> ParseTarget(std::string_view text);

}  // namespace qwen_image::http

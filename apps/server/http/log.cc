#include "server/http/log.h"

#include <fmt/chrono.h>

#include <chrono>

namespace qwen_image::http {
namespace {

// "2025-01-31T12:00:00.123Z"
std::string LogTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), milliseconds % 1000);
}

}  // namespace

std::string LogLine(const std::string& event, Json members) {
  members["time"] = LogTime();
  members["event"] = event;
  return members.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace qwen_image::http

#include "log.h"

#include <fmt/chrono.h>

#include <chrono>

#include "files/json.h"
#include "job.h"

namespace qwen_image::server {

std::string LogTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), milliseconds % 1000);
}

std::string JobLogLine(const Job& job) {
  Json line = {{"time", LogTime()}, {"event", "job"}, {"job", job.id}, {"state", Name(job.state)}};
  if (HasEnded(job.state)) {
    line["pictures"] = job.images.size();
    if (job.started > 0) line["seconds"] = static_cast<double>(job.finished - job.started) / 1000;
  } else {
    line["size"] = fmt::format("{}x{}", job.width, job.height);
    line["steps"] = job.steps;
    line["count"] = job.count;
  }
  if (job.state == JobState::kFailed) line["error"] = job.error;
  return line.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace qwen_image::server

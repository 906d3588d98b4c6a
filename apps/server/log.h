// Lines of the log.
#pragma once

#include <string>

namespace qwen_image::server {

struct Job;

std::string LogTime();  // "2025-01-31T12:00:00.123Z"
// A job that begins to run or has ended; what is drawn is not said.
std::string JobLogLine(const Job& job);

}  // namespace qwen_image::server

// Lines of the log.
#pragma once

#include <string>

#include "files/json.h"

namespace qwen_image::http {

// One line of JSON in ASCII: the members, the time and what happened.
std::string LogLine(const std::string& event, Json members);

}  // namespace qwen_image::http

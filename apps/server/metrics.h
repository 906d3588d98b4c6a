// What Prometheus reads.
#pragma once

#include <string>

#include "http_server.h"
#include "jobs.h"

namespace qwen_image::server {

std::string MetricsText(const JobStats& jobs, const HttpStats& http, int64_t queue_limit);

}  // namespace qwen_image::server

// What Prometheus reads.
#pragma once

#include <string>

#include "server/http/listener.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

std::string MetricsText(const jobs::QueueStats& jobs, const http::ListenerStats& http, int64_t queue_limit);

}  // namespace qwen_image::api

// What Prometheus reads.
#pragma once

#include <string>

#include "server/http/listener.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

// What does not change while the server runs.
struct ServedModel {
  std::string model, device;
  int64_t queue_limit = 0;
};

std::string MetricsText(const jobs::QueueStats& jobs, const http::ListenerStats& http,
                        const ServedModel& served);

}  // namespace qwen_image::api

// The routes of AUTOMATIC1111's web interface that other tools speak: /sdapi/v1/…
#pragma once

#include <optional>

#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

// None: the path is not one of these. Throws Error, jobs::QueueFull.
std::optional<http::Reply> A1111Route(const http::Request& request, const Pipeline& pipeline,
                                      jobs::Queue& queue);

}  // namespace qwen_image::api

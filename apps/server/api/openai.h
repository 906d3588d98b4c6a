// The routes of OpenAI's images API: /v1/images/generations, /v1/images/edits, /v1/models.
#pragma once

#include <optional>

#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

// None: the path is not one of these. Throws Error, jobs::QueueFull.
std::optional<http::Reply> OpenAiRoute(const http::Request& request, const Pipeline& pipeline,
                                       jobs::Queue& queue);

}  // namespace qwen_image::api

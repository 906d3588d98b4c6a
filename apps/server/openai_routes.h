// The routes of OpenAI's images API: /v1/images/generations, /v1/images/edits, /v1/models.
#pragma once

#include <optional>

#include "http_message.h"
#include "jobs.h"

namespace qwen_image::server {

// None: the path is not one of these. Throws Error, QueueFull.
std::optional<Reply> OpenAiRoute(const HttpRequest& request, const Pipeline& pipeline, Jobs& jobs);

}  // namespace qwen_image::server

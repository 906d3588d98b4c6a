// The routes of AUTOMATIC1111's web interface that other tools speak: /sdapi/v1/…
#pragma once

#include <optional>

#include "http_message.h"
#include "jobs.h"

namespace qwen_image::server {

// None: the path is not one of these. Throws Error, QueueFull.
std::optional<Reply> A1111Route(const HttpRequest& request, const Pipeline& pipeline, Jobs& jobs);

}  // namespace qwen_image::server

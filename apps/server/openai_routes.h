#pragma once
#include <optional>

#include "http_message.h"
#include "jobs.h"
namespace qwen_image::server {
inline std::optional<Reply> OpenAiRoute(const HttpRequest&, const Pipeline&, Jobs&) { return std::nullopt; }
}  // namespace qwen_image::server

// Replies that depend on a job which is still being drawn: a job's events in the words of HTTP.
#pragma once

#include <functional>
#include <string>

#include "http_message.h"
#include "jobs.h"

namespace qwen_image::server {

// `reply` makes the reply from the ended job. If the client leaves before, the job is cancelled: nobody else
// knows it.
LaterReply ReplyAfterJob(const HttpRequest& request, Jobs& jobs, const std::string& id,
                         std::function<HttpResponse(const Job&)> reply);

// "progress" and "preview" while it is drawn, then "end".
EventStream EventsOfJob(const HttpRequest& request, Jobs& jobs, const std::string& id);

}  // namespace qwen_image::server

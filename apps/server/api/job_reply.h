// Replies that depend on a job which is still being drawn: a job's events in the words of HTTP.
#pragma once

#include <functional>
#include <string>

#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

// `reply` makes the reply from the ended job. If the client leaves before, the job is cancelled: nobody else
// knows it.
http::LaterReply ReplyAfterJob(const http::Request& request, jobs::Queue& queue, const std::string& id,
                               std::function<http::Response(const jobs::Job&)> reply);

// "progress" and "preview" while it is drawn, then "end".
http::EventStream EventsOfJob(const http::Request& request, jobs::Queue& queue, const std::string& id);

}  // namespace qwen_image::api

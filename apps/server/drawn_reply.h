// What the routes have in common that draw while the client waits.
#pragma once

#include <functional>
#include <string>

#include "files/json.h"
#include "http_message.h"
#include "job_fields.h"
#include "jobs.h"

namespace qwen_image::server {

// What the loaded model is called in replies: "qwen-image", "qwen-image-edit-2509".
std::string ModelId(const Pipeline& pipeline);

HttpResponse JsonResponse(const Json& json);
// 405, with the method that would do.
HttpResponse WrongMethod(const HttpRequest& request, const std::string& allowed);
HttpResponse QueueFullResponse(const HttpRequest& request, const QueueFull& full);
// Why there is no picture, of a job that has ended without one.
HttpResponse FailedJobResponse(const HttpRequest& request, const Job& job);

// The JSON object of a request. Throws Error kUsage, also if the request says that it is something else.
Json JsonBody(const HttpRequest& request);

// Submits the job; `drawn` makes the reply of one that is done, all else is an error. Throws Error.
Reply DrawAndReply(const HttpRequest& request, Jobs& jobs, JobRequest job,
                   std::function<HttpResponse(const Job&)> drawn);

}  // namespace qwen_image::server

// What the routes have in common that draw while the client waits.
#pragma once

#include <functional>
#include <string>

#include "http_message.h"
#include "job_fields.h"
#include "jobs.h"

namespace qwen_image::server {

// What the loaded model is called in replies: "qwen-image", "qwen-image-edit-2509".
std::string ModelId(const Pipeline& pipeline);

// Why there is no picture, of a job that has ended without one.
HttpResponse FailedJobResponse(const HttpRequest& request, const Job& job);

// Submits the job; `drawn` makes the reply of one that is done, from the request without its body; all else
// is an error. Throws Error, QueueFull.
using DrawnReply = std::function<HttpResponse(const HttpRequest&, const Job&)>;
Reply DrawAndReply(const HttpRequest& request, Jobs& jobs, JobRequest job, DrawnReply drawn);

// A finished picture as base64. Throws Error kInternal if it was removed meanwhile.
std::string Base64Picture(const Jobs& jobs, const Job& job, size_t index);

}  // namespace qwen_image::server

// What the routes have in common that draw while the client waits.
#pragma once

#include <functional>
#include <string>

#include "files/picture_file.h"
#include "server/api/job_fields.h"
#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

// What the loaded model is called in replies: "qwen-image", "qwen-image-edit-2509".
std::string ModelId(const Pipeline& pipeline);

// Why there is no picture, of a job that has ended without one.
http::Response FailedJobResponse(const http::Request& request, const jobs::Job& job);

// Submits the job; `drawn` makes the reply of one that is done, from the request without its body; all else
// is an error. Throws Error, jobs::QueueFull.
using DrawnReply = std::function<http::Response(const http::Request&, const jobs::Job&)>;
http::Reply DrawAndReply(const http::Request& request, jobs::Queue& queue, jobs::Request job,
                         DrawnReply drawn);

// The file of a finished picture. Throws Error kInternal if it was removed meanwhile.
std::string EncodedPicture(const jobs::Queue& queue, const jobs::Job& job, size_t index,
                           const EncodedAs& as = {});
// A PNG file of this server's in another format, with the same texts.
std::string Reencoded(std::string png, const EncodedAs& as);

}  // namespace qwen_image::api

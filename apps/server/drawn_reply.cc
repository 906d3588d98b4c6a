#include "drawn_reply.h"

#include <utility>

#include "core/fail.h"
#include "files/text.h"
#include "http_error.h"

namespace qwen_image::server {

std::string ModelId(const Pipeline& pipeline) {
  const std::string& variant = pipeline.variant();
  if (variant.empty() || variant == "qwen-image") return "qwen-image";
  return "qwen-image-" + variant;
}

HttpResponse JsonResponse(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

HttpResponse WrongMethod(const HttpRequest& request, const std::string& allowed) {
  HttpResponse response =
      ErrorResponse(request, 405, ErrorType(405),
                    fmt::format("{} takes {}, not {}", request.path, allowed, Printable(request.method, 20)));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

HttpResponse QueueFullResponse(const HttpRequest& request, const QueueFull& full) {
  HttpResponse response = ErrorResponse(
      request, 429, ErrorType(429),
      fmt::format("{} jobs are waiting, which is the most that this server takes; try again in {} seconds",
                  full.waiting, full.retry_after_seconds),
      "queue_full");
  response.headers.emplace_back("Retry-After", std::to_string(full.retry_after_seconds));
  return response;
}

HttpResponse FailedJobResponse(const HttpRequest& request, const Job& job) {
  // Not a status that clients answer by asking again: somebody did not want the picture.
  if (job.state == JobState::kCancelled)
    return ErrorResponse(request, 410, ErrorType(410), job.error, "cancelled");
  if (job.state == JobState::kInterrupted)
    return ErrorResponse(request, 503, ErrorType(503), job.error, "interrupted");
  // The request was checked before, so a broken file is one of this machine.
  const int status = job.error_kind == ErrorKind::kBadInput ? 500 : HttpStatus(job.error_kind);
  return ErrorResponse(request, status, ErrorType(status), job.error);
}

Json JsonBody(const HttpRequest& request) {
  // A form of a foreign page can send text/plain without being asked for its origin; JSON it cannot.
  const std::string type = request.content_type.substr(0, request.content_type.find(';'));
  if (type != "application/json")
    Fail(ErrorKind::kUsage, "the request's Content-Type is {}; application/json is expected", Quoted(type));
  return ParseBody(request.body);
}

Reply DrawAndReply(const HttpRequest& request, Jobs& jobs, JobRequest job,
                   std::function<HttpResponse(const Job&)> drawn) {
  try {
    const std::string id = jobs.Submit(std::move(job));
    HttpRequest asked = {
        .method = request.method, .path = request.path, .id = request.id};  // without its body
    return WaitForJob{id, [asked = std::move(asked), drawn = std::move(drawn)](const Job& ended) {
                        if (ended.state == JobState::kDone) return drawn(ended);
                        return FailedJobResponse(asked, ended);
                      }};
  } catch (const QueueFull& full) {
    return QueueFullResponse(request, full);
  }
}

}  // namespace qwen_image::server

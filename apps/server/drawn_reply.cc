#include "drawn_reply.h"

#include <utility>

#include "core/fail.h"
#include "draw/opened_model.h"
#include "files/base64.h"
#include "http_error.h"
#include "job_reply.h"

namespace qwen_image::server {

std::string ModelId(const Pipeline& pipeline) { return draw::ModelOf(pipeline).model->id(); }

HttpResponse FailedJobResponse(const HttpRequest& request, const Job& job) {
  // Not a status that clients answer by asking again: somebody did not want the picture.
  if (job.state == JobState::kCancelled)
    return ErrorResponse(request, 410, ErrorType(410), job.error, "cancelled");
  if (job.state == JobState::kInterrupted)
    return ErrorResponse(request, 503, ErrorType(503), job.error, "interrupted");
  // The request was checked before, so a broken file is one of this machine.
  const int status = job.error_kind == ErrorKind::kBadInput ? 500 : HttpStatus(job.error_kind);
  return Problem(request, status, job.error);
}

Reply DrawAndReply(const HttpRequest& request, Jobs& jobs, JobRequest job, DrawnReply drawn) {
  HttpRequest asked = {.path = request.path, .origin = request.origin, .id = request.id};
  return ReplyAfterJob(request, jobs, jobs.Submit(std::move(job)),
                       [asked = std::move(asked), drawn = std::move(drawn)](const Job& ended) {
                         try {
                           if (ended.state == JobState::kDone) return drawn(asked, ended);
                           return FailedJobResponse(asked, ended);
                         } catch (const Error& error) {
                           return ErrorResponse(asked, error);
                         }
                       });
}

std::string Base64Picture(const Jobs& jobs, const Job& job, size_t index) {
  const auto png = jobs.ReadPng(job.id, static_cast<int64_t>(index));
  if (!png)
    Fail(ErrorKind::kInternal, "picture {} of job {} was removed before it could be sent", index, job.id);
  return EncodeBase64(*png);
}

}  // namespace qwen_image::server

#include "server/api/drawn_reply.h"

#include <utility>

#include "core/fail.h"
#include "draw/opened_model.h"
#include "qwen_image/image_file.h"
#include "server/api/job_reply.h"
#include "server/api/replies.h"

namespace qwen_image::api {

std::string ModelId(const Pipeline& pipeline) { return draw::ModelOf(pipeline).model->id(); }

http::Response FailedJobResponse(const http::Request& request, const jobs::Job& job) {
  // Not a status that clients answer by asking again: somebody did not want the picture.
  if (job.state == jobs::State::kCancelled)
    return ErrorResponse(request, 410, ErrorType(410), job.error, "cancelled");
  if (job.state == jobs::State::kInterrupted)
    return ErrorResponse(request, 503, ErrorType(503), job.error, "interrupted");
  // The request was checked before, so a broken file is one of this machine.
  const int status = job.error_kind == ErrorKind::kBadInput ? 500 : HttpStatus(job.error_kind);
  return Problem(request, status, job.error);
}

http::Reply DrawAndReply(const http::Request& request, jobs::Queue& queue, jobs::Request job,
                         DrawnReply drawn) {
  http::Request asked = {.path = request.path, .origin = request.origin, .id = request.id};
  return ReplyAfterJob(request, queue, queue.Submit(std::move(job)),
                       [asked = std::move(asked), drawn = std::move(drawn)](const jobs::Job& ended) {
                         try {
                           if (ended.state == jobs::State::kDone) return drawn(asked, ended);
                           return FailedJobResponse(asked, ended);
                         } catch (const Error& error) {
                           return ErrorResponse(asked, error);
                         }
                       });
}

std::string EncodedPicture(const jobs::Queue& queue, const jobs::Job& job, size_t index,
                           const EncodedAs& as) {
  std::optional<std::string> png = queue.ReadPng(job.id, static_cast<int64_t>(index));
  if (!png)
    Fail(ErrorKind::kInternal, "picture {} of job {} was removed before it could be sent", index, job.id);
  return Reencoded(std::move(*png), as);
}

std::string Reencoded(std::string png, const EncodedAs& as) {
  if (as.format == PictureFormat::kPng) return png;
  constexpr const char* kWhere = "the picture";
  return EncodePicture(DecodeImage(png, kWhere, {}, Transparency::kKept).image, as,
                       DecodePictureText(png, kWhere));
}

}  // namespace qwen_image::api

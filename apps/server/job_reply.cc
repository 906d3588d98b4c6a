#include "job_reply.h"

#include <memory>
#include <optional>
#include <utility>

#include "files/base64.h"
#include "http_error.h"
#include "job_fields.h"

namespace qwen_image::server {
namespace {

Event StreamedEvent(const Job& job, const JobEvent& event) {
  switch (event.kind) {
    case JobEvent::Kind::kProgress:
      return {Event::Kind::kState, "progress", [job] { return JsonText(JobJson(job)); }};
    case JobEvent::Kind::kPreview:
      return {Event::Kind::kDetail, "preview", [png = event.preview_png] {
                return JsonText({{"image", "data:image/png;base64," + EncodeBase64(png)}});
              }};
    case JobEvent::Kind::kEnd:
      break;
  }
  return {Event::Kind::kEnd, "end", [job] { return JsonText(JobJson(job)); }};
}

}  // namespace

LaterReply ReplyAfterJob(const HttpRequest& request, Jobs& jobs, const std::string& id,
                         std::function<HttpResponse(const Job&)> reply) {
  // Kept here: by the time of the reply somebody may have removed the job from the queue.
  const auto ended = std::make_shared<std::optional<Job>>();
  HttpResponse removed = Problem(request, 404, "the job was removed");
  return {.job_id = id,
          .events =
              [&jobs, id, ended](std::function<void(Event)> tell) {
                return jobs.Subscribe(id,
                                      [ended, tell = std::move(tell)](const Job& job, const JobEvent& event) {
                                        if (event.kind != JobEvent::Kind::kEnd) return;
                                        *ended = job;
                                        tell({.kind = Event::Kind::kEnd});
                                      });
              },
          .reply = [ended, removed = std::move(removed),
                    reply = std::move(reply)] { return *ended ? reply(**ended) : removed; },
          .client_left = [&jobs, id] { jobs.Cancel(id); }};
}

EventStream EventsOfJob(const HttpRequest& request, Jobs& jobs, const std::string& id) {
  return {.job_id = id,
          .events =
              [&jobs, id](std::function<void(Event)> tell) {
                return jobs.Subscribe(id, [tell = std::move(tell)](const Job& job, const JobEvent& event) {
                  tell(StreamedEvent(job, event));
                });
              },
          .if_none = Problem(request, 404, "there is no such job")};
}

}  // namespace qwen_image::server

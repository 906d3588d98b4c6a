#include "server/api/job_reply.h"

#include <memory>
#include <optional>
#include <utility>

#include "files/base64.h"
#include "server/api/job_fields.h"
#include "server/api/replies.h"

namespace qwen_image::api {
namespace {

http::Event StreamedEvent(const jobs::Job& job, const jobs::Event& event) {
  switch (event.kind) {
    case jobs::Event::Kind::kProgress:
      return {http::Event::Kind::kState, "progress", [job] { return JsonText(JobJson(job)); }};
    case jobs::Event::Kind::kPreview:
      return {http::Event::Kind::kDetail, "preview", [png = event.preview_png] {
                return JsonText({{"image", "data:image/png;base64," + EncodeBase64(png)}});
              }};
    case jobs::Event::Kind::kEnd:
      break;
  }
  return {http::Event::Kind::kEnd, "end", [job] { return JsonText(JobJson(job)); }};
}

}  // namespace

http::LaterReply ReplyAfterJob(const http::Request& request, jobs::Queue& queue, const std::string& id,
                               std::function<http::Response(const jobs::Job&)> reply) {
  // Kept here: by the time of the reply somebody may have removed the job from the queue.
  const auto ended = std::make_shared<std::optional<jobs::Job>>();
  http::Response removed = Problem(request, 404, "the job was removed");
  return {.job_id = id,
          .events =
              [&queue, id, ended](std::function<void(http::Event)> tell) {
                return queue.Subscribe(
                    id, [ended, tell = std::move(tell)](const jobs::Job& job, const jobs::Event& event) {
                      if (event.kind != jobs::Event::Kind::kEnd) return;
                      *ended = job;
                      tell({.kind = http::Event::Kind::kEnd});
                    });
              },
          .reply = [ended, removed = std::move(removed),
                    reply = std::move(reply)] { return *ended ? reply(**ended) : removed; },
          .client_left = [&queue, id] { queue.Cancel(id); }};
}

http::EventStream EventsOfJob(const http::Request& request, jobs::Queue& queue, const std::string& id) {
  return {.job_id = id,
          .events =
              [&queue, id](std::function<void(http::Event)> tell) {
                return queue.Subscribe(
                    id, [tell = std::move(tell)](const jobs::Job& job, const jobs::Event& event) {
                      tell(StreamedEvent(job, event));
                    });
              },
          .if_none = Problem(request, 404, "there is no such job")};
}

}  // namespace qwen_image::api

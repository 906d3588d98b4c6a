#include "server/api/routes.h"

#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "options/names.h"
#include "server/api/a1111.h"
#include "server/api/drawn_reply.h"
#include "server/api/job_fields.h"
#include "server/api/job_reply.h"
#include "server/api/metrics.h"
#include "server/api/openai.h"
#include "server/api/replies.h"
#include "server/page/files.h"

namespace qwen_image::api {
namespace {

// "/jobs/ID/images/0.png" → {"jobs", "ID", "images", "0.png"}
std::vector<std::string> Parts(const std::string& path) {
  constexpr size_t kMost = 6;
  std::vector<std::string> parts;
  for (size_t at = 1; at <= path.size() && parts.size() < kMost;) {
    const size_t slash = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  return parts;
}

}  // namespace

Routes::Routes(const Pipeline& pipeline, jobs::Queue& jobs, RoutesSettings settings,
               std::function<http::ListenerStats()> http_stats)
    : pipeline_(pipeline), jobs_(jobs), settings_(std::move(settings)), http_stats_(std::move(http_stats)) {}

bool Routes::IsPublic(const std::string& path) {
  return path == "/health" || page::FindFile(path) != nullptr;
}

bool Routes::IsQuick(const std::string& path) { return path == "/health" || path == "/metrics"; }

http::Reply Routes::Handle(const http::Request& request) const {
  try {
    return Dispatch(request);
  } catch (const jobs::QueueFull& full) {
    http::Response response = Problem(request, 429,
                                      fmt::format("{} jobs are waiting, and no more can; try again in {} s",
                                                  full.waiting, full.retry_after_seconds));
    response.headers.emplace_back("Retry-After", std::to_string(full.retry_after_seconds));
    return response;
  } catch (const Error& error) {
    return ErrorResponse(request, error);
  } catch (const std::bad_alloc&) {
    return Problem(request, 503, "there is not enough memory for this request");
  } catch (const std::exception& error) {
    return Problem(request, 500, fmt::format("a bug in the server: {}", Printable(error.what())));
  }
}

http::Reply Routes::Dispatch(const http::Request& request) const {
  const std::string& path = request.path;
  if (path == "/jobs" || path.starts_with("/jobs/")) return JobRoute(request);
  if (path == "/health" || path == "/metrics" || path == "/info" || page::FindFile(path)) {
    if (auto other = OtherMethod(request, {"GET"})) return *other;
    if (path == "/health") return Health();
    if (path == "/info") return Info();
    if (path == "/metrics")
      return http::Response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                            .body = MetricsText(jobs_.Stats(), http_stats_(),
                                                {.model = ModelId(pipeline_),
                                                 .device = std::string(NameOf(pipeline_.device())),
                                                 .queue_limit = settings_.queue_limit})};
    return *page::FindFile(path);
  }
  if (auto reply = OpenAiRoute(request, pipeline_, jobs_)) return *reply;
  if (auto reply = A1111Route(request, pipeline_, jobs_)) return *reply;
  return Problem(request, 404, fmt::format("there is nothing at {}", Quoted(path)));
}

http::Reply Routes::JobRoute(const http::Request& request) const {
  const std::vector<std::string> parts = Parts(request.path);
  if (parts.size() == 1) {
    if (auto other = OtherMethod(request, {"GET", "POST"})) return *other;
    if (request.method == "POST") return Submit(request);
    Json jobs = Json::array();
    for (const jobs::Job& job : jobs_.List()) jobs.push_back(JobJson(job));
    return JsonResponse({{"jobs", std::move(jobs)}});
  }
  // The id is looked up among those that are known; no part of the path becomes a name of a file.
  const std::optional<jobs::Job> job = jobs_.Find(parts[1]);
  if (!job)
    return Problem(request, 404,
                   "there is no such job; it may have been removed to make room for newer ones");
  if (parts.size() == 2) {
    if (auto other = OtherMethod(request, {"GET", "DELETE"})) return *other;
    return request.method == "DELETE" ? Delete(request, *job) : JsonResponse(JobJson(*job));
  }
  if (parts.size() == 3 && parts[2] == "events") {
    if (auto other = OtherMethod(request, {"GET"})) return *other;
    return EventsOfJob(request, jobs_, job->id);
  }
  if (parts.size() == 4 && parts[2] == "images") {
    if (auto other = OtherMethod(request, {"GET"})) return *other;
    return Picture(request, *job, parts[3]);
  }
  return Problem(request, 404, fmt::format("there is nothing at {}", Quoted(request.path)));
}

http::Response Routes::Submit(const http::Request& request) const {
  const std::string id = jobs_.Submit(ParseJobRequest(ParseBody(request.body), pipeline_));
  const std::optional<jobs::Job> job = jobs_.Find(id);
  if (!job) return Problem(request, 500, "the job is gone already; the server keeps too few");
  http::Response response = JsonResponse(JobJson(*job), 202);
  response.headers.emplace_back("Location", "/jobs/" + id);
  response.job_id = id;
  return response;
}

http::Response Routes::Delete(const http::Request& request, const jobs::Job& job) const {
  if (jobs_.Cancel(job.id)) {
    const std::optional<jobs::Job> now = jobs_.Find(job.id);
    return JsonResponse(JobJson(now.value_or(job)), 202);  // a running one ends within a step
  }
  if (jobs_.Remove(job.id)) return {.status = 204, .content_type = "", .body = ""};
  return Problem(request, 404, "there is no such job");
}

http::Response Routes::Picture(const http::Request& request, const jobs::Job& job,
                               const std::string& file) const {
  const std::string_view ending = std::string_view(file).substr(std::min(file.find('.'), file.size()));
  const auto format = ending.empty() ? std::nullopt : FormatNamed(ending.substr(1));
  const auto index =
      format ? ParseWhole(std::string_view(file).substr(0, file.size() - ending.size())) : std::nullopt;
  if (!index || *index >= job.images.size())
    return Problem(request, 404, "the job has no such picture, or has not finished it yet");
  std::optional<std::string> png = jobs_.ReadPng(job.id, static_cast<int64_t>(*index));
  if (!png) return Problem(request, 404, "the file of this picture is gone");
  const auto asked = request.query.find("compression");
  const auto quality =
      asked == request.query.end() ? std::optional<uint64_t>(100) : ParseWhole(asked->second);
  if (!quality || *quality > 100)
    return Problem(request, 400, "compression must be a whole number from 0 to 100");
  http::Response response{
      .content_type = fmt::format("image/{}", NameOf(*format)),
      .body = Reencoded(std::move(*png), {.format = *format, .quality = static_cast<int>(*quality)})};
  response.headers.emplace_back("Cache-Control", "private, max-age=31536000, immutable");
  const auto download = request.query.find("download");
  if (download != request.query.end() && download->second == "1")
    response.headers.emplace_back("Content-Disposition",
                                  fmt::format("attachment; filename=\"qwen-image-{}-{}{}\"",
                                              job.images[*index].seed, *index + 1, ending));
  return response;
}

http::Response Routes::Info() const {
  const Defaults& d = pipeline_.defaults();
  const RequestLimits limits;
  return JsonResponse({{"model", ModelId(pipeline_)},
                       {"loaded_from", settings_.model_name},
                       {"variant", pipeline_.variant()},
                       {"edits", pipeline_.edits()},
                       {"channels", pipeline_.channels()},
                       {"side_multiple", pipeline_.side_multiple()},
                       {"defaults",
                        {{"width", d.width},
                         {"height", d.height},
                         {"steps", d.steps},
                         {"cfg", d.cfg},
                         {"negative_prompt", d.negative_prompt},
                         {"lightning", d.lightning}}},
                       {"limits",
                        {{"pixels", limits.pixels},
                         {"n", limits.n},
                         {"steps", limits.steps},
                         {"prompt_bytes", limits.prompt_bytes},
                         {"images", limits.images},
                         {"image_pixels", limits.image_pixels},
                         {"body_bytes", settings_.max_body_bytes},
                         {"queue", settings_.queue_limit}}},
                       {"version", Version()},
                       {"threads", pipeline_.threads()}});
}

http::Response Routes::Health() const {
  const bool stopping = stopping_;
  Json health = {{"status", stopping ? "stopping" : "ok"}};
  if (const auto workers = jobs_.Stats().workers)
    health["workers"] = {{"waiting", workers->waiting}, {"drawing", workers->drawing}};
  return JsonResponse(health, stopping ? 503 : 200);
}

}  // namespace qwen_image::api

#include "server/service.h"

#include <fmt/format.h>

#include <csignal>

#include "files/json.h"
#include "server/api/replies.h"
#include "server/http/log.h"

namespace qwen_image::server {
namespace {

// Of a job that begins to run or has ended. What it draws is not said.
std::string JobLogLine(const jobs::Job& job) {
  Json line = {{"job", job.id}, {"state", Name(job.state)}};
  if (HasEnded(job.state)) {
    line["pictures"] = job.images.size();
    if (job.started > 0) line["seconds"] = static_cast<double>(job.finished - job.started) / 1000;
  } else {
    line["size"] = fmt::format("{}x{}", job.width(), job.height());
    line["steps"] = job.steps();
    line["count"] = job.count;
  }
  if (job.state == jobs::State::kFailed) line["error"] = job.error;
  return http::LogLine("job", std::move(line));
}

}  // namespace

Server::Server(const Pipeline& pipeline, const ServerSettings& settings)
    : jobs_(pipeline, settings.jobs_folder, settings.jobs,
            {.model_name = settings.model_name,
             .mark = settings.mark,
             .on_state =
                 [log = settings.log](const jobs::Job& job) {
                   if (log) log(JobLogLine(job));
                 }},
            settings.drawer),
      routes_(pipeline, jobs_,
              {.model_name = settings.model_name,
               .queue_limit = settings.jobs.queue,
               .max_body_bytes = settings.http.max_body_bytes},
              [this] { return http_.Stats(); }),
      http_(settings.http,
            {.handle = [this](const http::Request& request) { return routes_.Handle(request); },
             .problem = api::Problem,
             .is_public = api::Routes::IsPublic,
             .is_quick = api::Routes::IsQuick,
             .log = settings.log}) {
  if (!settings.log) return;
  for (const std::string& problem : jobs_.problems())
    settings.log(http::LogLine("unreadable job", {{"message", problem}}));
}

Server::~Server() {
  if (draining_.joinable()) draining_.join();
}

void Server::Run() { http_.Run(); }

void Server::Drain(bool finish_queue) {
  const std::lock_guard lock(mutex_);
  if (draining_.joinable()) {
    jobs_.Stop();
    return;
  }
  routes_.BeginStop();
  http_.StopAccepting();
  draining_ = std::thread([this, finish_queue] {
    jobs_.Drain(finish_queue);
    http_.Stop();
  });
}

void Server::DrainOnSignals() {
  // Who presses Ctrl-C waits; who sends SIGTERM, as service managers do, has a time limit of his own.
  http_.OnSignals([this](int signal) { Drain(/*finish_queue=*/signal == SIGTERM); });
}

}  // namespace qwen_image::server

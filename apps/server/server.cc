#include "server.h"

#include <csignal>

#include "files/json.h"
#include "log.h"

namespace qwen_image::server {

Server::Server(const Pipeline& pipeline, const ServerSettings& settings)
    : jobs_(pipeline, settings.jobs_folder, settings.jobs,
            {.model_name = settings.model_name,
             .on_state =
                 [log = settings.log](const Job& job) {
                   if (log) log(JobLogLine(job));
                 }}),
      routes_(pipeline, jobs_,
              {.model_name = settings.model_name,
               .queue_limit = settings.jobs.queue,
               .max_body_bytes = settings.http.max_body_bytes},
              [this] { return http_.Stats(); }),
      http_(settings.http,
            {.handle = [this](const HttpRequest& request) { return routes_.Handle(request); },
             .is_public = Routes::IsPublic,
             .is_quick = Routes::IsQuick,
             .log = settings.log},
            jobs_) {
  if (!settings.log) return;
  for (const std::string& problem : jobs_.problems())
    settings.log(Json{{"time", LogTime()}, {"event", "unreadable job"}, {"message", problem}}.dump(
        -1, ' ', true, Json::error_handler_t::replace));
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

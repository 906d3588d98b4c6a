// The server as a whole: jobs, routes and HTTP, and how it stops.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "server/api/routes.h"
#include "server/http/listener.h"
#include "server/jobs/queue.h"

namespace qwen_image::server {

struct ServerSettings {
  http::Settings http;
  jobs::Limits jobs;
  std::filesystem::path jobs_folder;
  std::string model_name;
  draw::SourceMark mark = draw::SourceMark::kWritten;
  std::shared_ptr<jobs::Drawer> drawer = nullptr;         // null: this process draws
  std::function<void(const std::string& line)> log = {};  // JSON, one line; from several threads
};

class Server {
 public:
  // Throws Error.
  Server(const Pipeline& pipeline, const ServerSettings& settings);
  ~Server();

  std::string url() const { return http_.url(); }
  uint16_t port() const { return http_.port(); }
  jobs::Queue& jobs() { return jobs_; }

  void Run();  // until Drain() has done its work
  // From any thread. No new connections; the running job is finished, and those that wait are, too, or are
  // recorded as interrupted. A second call interrupts whatever is left.
  void Drain(bool finish_queue = false);
  void DrainOnSignals();  // SIGTERM finishes the queue, SIGINT the running job; before Run()

 private:
  jobs::Queue jobs_;
  api::Routes routes_;
  http::Listener http_;
  std::mutex mutex_;
  std::thread draining_;
};

}  // namespace qwen_image::server

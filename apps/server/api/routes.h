// From a request's path to what answers it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "server/http/listener.h"
#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

struct RoutesSettings {
  std::string model_name;  // of its files, for /info
  int64_t queue_limit = 16;
  uint64_t max_body_bytes = 0;  // for /info
};

class Routes {
 public:
  // `http_stats` is asked for /metrics.
  Routes(const Pipeline& pipeline, jobs::Queue& jobs, RoutesSettings settings,
         std::function<http::ListenerStats()> http_stats);

  // Throws only if there is not even memory to say so.
  http::Reply Handle(const http::Request& request) const;
  static bool IsPublic(const std::string& path);
  static bool IsQuick(const std::string& path);
  void BeginStop() { stopping_ = true; }  // /health says so

 private:
  http::Reply Dispatch(const http::Request& request) const;
  http::Reply JobRoute(const http::Request& request) const;
  http::Response Submit(const http::Request& request) const;
  http::Response Delete(const http::Request& request, const jobs::Job& job) const;
  http::Response Picture(const http::Request& request, const jobs::Job& job, const std::string& file) const;
  http::Response Info() const;
  http::Response Health() const;

  const Pipeline& pipeline_;
  jobs::Queue& jobs_;
  const RoutesSettings settings_;
  const std::function<http::ListenerStats()> http_stats_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace qwen_image::api

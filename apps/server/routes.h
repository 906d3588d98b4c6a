// From a request's path to what answers it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "http_message.h"
#include "http_server.h"
#include "jobs.h"

namespace qwen_image::server {

struct RoutesSettings {
  std::string model_name;  // of its files, for /info
  int64_t queue_limit = 16;
  uint64_t max_body_bytes = 0;  // for /info
};

class Routes {
 public:
  // `http_stats` is asked for /metrics.
  Routes(const Pipeline& pipeline, Jobs& jobs, RoutesSettings settings,
         std::function<HttpStats()> http_stats);

  Reply Handle(const HttpRequest& request) const noexcept;
  static bool IsPublic(const std::string& path);
  static bool IsQuick(const std::string& path);
  void BeginStop() { stopping_ = true; }  // /health says so

 private:
  Reply Dispatch(const HttpRequest& request) const;
  Reply JobRoute(const HttpRequest& request) const;
  HttpResponse Submit(const HttpRequest& request) const;
  HttpResponse Delete(const HttpRequest& request, const Job& job) const;
  HttpResponse Picture(const HttpRequest& request, const Job& job, const std::string& file) const;
  HttpResponse Info() const;
  HttpResponse Health() const;

  const Pipeline& pipeline_;
  Jobs& jobs_;
  const RoutesSettings settings_;
  const std::function<HttpStats()> http_stats_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace qwen_image::server

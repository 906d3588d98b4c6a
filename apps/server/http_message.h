// Requests and replies as the routes see them: whole, checked, without sockets.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace qwen_image::server {

struct Job;

struct HttpRequest {
  std::string method;                        // "GET", …
  std::string path;                          // without the query
  std::map<std::string, std::string> query;  // percent-decoded
  std::string content_type;                  // as sent, with its parameters
  std::string
      origin;      // "http://127.0.0.1:8080": where the client reached this server, for addresses in replies
  std::string id;  // of this request, for logs and errors
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The reply comes when the job has ended. If the client leaves before, the job is cancelled: nobody else
// knows it.
struct WaitForJob {
  std::string job_id;
  std::function<HttpResponse(const Job&)> reply;
};

// Server-sent events of a job until it has ended.
struct EventStream {
  std::string job_id;
};

using Reply = std::variant<HttpResponse, WaitForJob, EventStream>;

}  // namespace qwen_image::server

// Requests and replies as the routes see them: whole, checked, without sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace qwen_image::http {

struct Request {
  std::string method;                        // "GET", …
  std::string path;                          // without the query
  std::map<std::string, std::string> query;  // percent-decoded
  std::string content_type;                  // as sent, with its parameters
  std::string origin;  // where the client reached this server, for addresses: "http://127.0.0.1:8080"
  std::string id;      // of this request, for logs and errors
  std::string body;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string job_id = {};  // of the job that the request made; for the log alone
};

// What is told of something that takes its time, to a client that waits for it.
struct Event {
  // A newer event replaces an older one of its kind that has not been sent yet, so that slow clients cost no
  // memory. kState says how things stand, kDetail shows something of them, kEnd is the last state: nothing
  // follows it, and details that have not been sent are dropped. None of kKept is replaced or dropped: who
  // tells them tells few.
  enum class Kind { kState, kDetail, kKept, kEnd } kind = Kind::kState;
  std::string name = {};                   // in the stream
  std::function<std::string()> data = {};  // one line; made when it is sent, by a worker
};

// Begins to tell events, on any thread, until the handle is let go. Null: there is nothing to wait for.
using EventSource = std::function<std::shared_ptr<void>(std::function<void(Event)> tell)>;

// A reply that can be made only later.
struct LaterReply {
  std::string job_id;                 // for the log alone
  EventSource events;                 // of these only the end matters
  std::function<Response()> reply;    // called by a worker after the end, or at once if there are no events
  std::function<void()> client_left;  // called by a worker, instead of `reply`
};

// Server-sent events until the end.
struct EventStream {
  std::string job_id;  // for the log alone
  EventSource events;
  Response if_none;                        // the reply if there are no events
  std::function<void()> client_left = {};  // called by a worker if the client leaves before the end
};

using Reply = std::variant<Response, LaterReply, EventStream>;

}  // namespace qwen_image::http

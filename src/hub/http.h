// HTTP GET and HEAD by libcurl, with the manners that a download of untrusted bytes needs: http and https
// only, certificates checked, few redirects, the token for its own server only, no endless silence.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace qwen_image::hub {

struct HttpRequest {
  std::string url;
  std::string token;    // sent to the server of `url`, never to one that it redirects to
  uint64_t offset = 0;  // above 0: ask for the bytes from here
  bool head = false;    // only the headers, and without following redirects to other servers
};

// The last answer, after redirects.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string Header(const std::string& name) const;  // empty if it is not there
  bool has_body() const { return status == 200 || status == 206; }
};

struct HttpResult {
  HttpHead head;
  std::string problem;     // empty: the answer arrived, whatever its status; else what cut it off
  bool temporary = false;  // another try may help: a cut connection, 429, 5xx
  std::chrono::seconds retry_after{0};
};

// For one thread at a time; keeps its connection for the next request.
class HttpClient {
 public:
  // `stopped` is asked about once a second; true ends a request with Error kInterrupted.
  explicit HttpClient(std::function<bool()> stopped);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `sink` gets the bytes of an answer with status 200 or 206. What it throws comes out here.
  using Sink = std::function<void(const HttpHead& head, std::string_view bytes)>;
  HttpResult Get(const HttpRequest& request, const Sink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Every byte that has a meaning in an address becomes %NN; a slash too, unless `keep_slashes`.
std::string UrlEncoded(std::string_view text, bool keep_slashes);

}  // namespace qwen_image::hub

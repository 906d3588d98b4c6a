// A small HTTP server for tests, on 127.0.0.1, that can misbehave.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace qwen_image {

struct TestRequest {
  std::string method, path;                    // the path with what follows '?'
  std::map<std::string, std::string> headers;  // names in lower case

  bool Has(const std::string& name) const { return headers.contains(name); }
};

struct TestResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool says_length = true;               // else the end of the connection is the end of the body
  size_t cut_after = std::string::npos;  // bytes of the body, then the connection ends
  bool hold = false;                     // there, wait until the client ends it instead
  std::function<void()> when_sent;       // what there is to send
};

class TestServer {
 public:
  using Handler = std::function<TestResponse(const TestRequest&)>;  // one call at a time
  explicit TestServer(Handler handler);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:PORT"
  std::vector<TestRequest> requests() const;

 private:
  void Accept();
  void Serve(int connection);

  Handler handler_;
  int listening_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::set<int> connections_;  // open ones
  std::vector<std::thread> threads_;
  bool ending_ = false;
  std::mutex handler_mutex_;
  std::thread acceptor_;
};

}  // namespace qwen_image

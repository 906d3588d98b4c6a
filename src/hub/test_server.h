// A small HTTP server for tests, on 127.0.0.1, that can misbehave.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace qwen_image::hub {

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

// Lets nobody pass before `count` have come.
class Gate {
 public:
  explicit Gate(int count) : count_(count) {}

  bool Pass() {  // false: the others did not come in a time that is long for any machine
    std::unique_lock lock(mutex_);
    --count_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return count_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_;
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

}  // namespace qwen_image::hub

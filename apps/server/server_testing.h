// What the server's tests share: a tiny model, a server in a thread, and clients that speak bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "files/json.h"
#include "files/testing.h"
#include "server.h"

namespace qwen_image::server {

const Pipeline& TinyPipeline();  // loaded once

JobRequest QuickJob(uint64_t seed = 1);  // drawn in no time
JobRequest LongJob();                    // drawn for longer than any test takes; to be cancelled
inline constexpr const char* kQuickBody =
    R"({"prompt": "a red circle", "width": 32, "height": 32, "steps": 1, "cfg": 1, "seed": 1})";
inline constexpr const char* kLongBody =
    R"({"prompt": "a red circle", "width": 256, "height": 256, "steps": 200, "n": 10, "seed": 1})";

// Returns when the job has ended; the job as it is then.
Job WaitForEnd(Jobs& jobs, const std::string& id);
// Returns when the job has begun to denoise.
void WaitForSteps(Jobs& jobs, const std::string& id);

struct TestReply {
  int status = 0;                              // 0: the connection ended before a reply
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  Json json() const { return Json::parse(body, nullptr, false); }
};

// A client on a socket of its own. Reading gives up after a time that is long for any machine.
class Client {
 public:
  explicit Client(uint16_t port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(std::string_view bytes);  // false: the server has closed the connection
  TestReply Read(bool has_body = true);
  // What comes until `text` has, or the connection ends.
  std::string ReadUntil(std::string_view text);
  bool ReadEnd();  // nothing more comes, and the connection ends
  void Close();
  void Reset();        // ends it the rude way
  void SmallWindow();  // before anything is read: the kernel takes little

 private:
  bool Fill();

  int socket_ = -1;
  std::string received_;
};

std::string RequestText(const std::string& method, const std::string& path, uint16_t port,
                        const std::string& body = "", const std::string& more_headers = "");

// Runs in a thread until it is destroyed.
class TestServer {
 public:
  explicit TestServer(const std::filesystem::path& folder, ServerSettings settings = {});
  ~TestServer();

  Server& operator*() { return server_; }
  Server* operator->() { return &server_; }
  uint16_t port() const { return server_.port(); }
  TestReply Ask(const std::string& method, const std::string& path, const std::string& body = "",
                const std::string& more_headers = "") const;
  std::string Submit(const std::string& body) const;  // the id
  void Join();                                        // after Drain(): until it has stopped
  std::vector<std::string> log() const;

 private:
  ServerSettings WithLog(ServerSettings settings, const std::filesystem::path& folder);

  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  Server server_;
  std::thread thread_;
};

}  // namespace qwen_image::server

// What the server's tests share: a server in a thread, and what to ask it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "files/json.h"
#include "files/testing.h"
#include "server/http/test_client.h"
#include "server/service.h"

namespace qwen_image::server {

inline constexpr const char* kQuickBody =
    R"({"prompt": "a red circle", "width": 32, "height": 32, "steps": 1, "cfg": 1, "seed": 1})";
inline constexpr const char* kLongBody =
    R"({"prompt": "a red circle", "width": 128, "height": 128, "steps": 200, "n": 10, "seed": 1})";

// Runs in a thread until it is destroyed.
class TestServer {
 public:
  explicit TestServer(const std::filesystem::path& folder, ServerSettings settings = {});
  ~TestServer();

  Server& operator*() { return server_; }
  Server* operator->() { return &server_; }
  uint16_t port() const { return server_.port(); }
  http::TestReply Ask(const std::string& method, const std::string& path, const std::string& body = "",
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

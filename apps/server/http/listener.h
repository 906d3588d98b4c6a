// HTTP over sockets: limits, deadlines and who may ask. The handler alone knows what a request means.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/http/message.h"

namespace qwen_image::http {

struct Settings {
  std::string host = "127.0.0.1";  // an address, or localhost
  uint16_t port = 8080;            // 0: any free one
  std::string key;                 // empty: none is asked for
  std::vector<std::string> allowed_hosts;

  size_t max_connections = 128;
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = 64 << 20;
  uint64_t max_bodies_bytes = 256 << 20;   // of all requests at once
  uint64_t max_replies_bytes = 256 << 20;  // of all replies at once that wait for their readers

  int send_buffer_bytes = 0;  // of a connection, in the kernel; 0: as the system likes

  // For the whole of each: a client that sends or takes a byte now and then does not get more time.
  using Milliseconds = std::chrono::milliseconds;
  Milliseconds header_deadline = std::chrono::seconds(15);
  Milliseconds body_deadline = std::chrono::seconds(120);
  Milliseconds write_deadline = std::chrono::seconds(120);
  Milliseconds idle_deadline = std::chrono::seconds(60);  // between requests
  Milliseconds heartbeat = std::chrono::seconds(10);      // of event streams: shows clients that are gone
  Milliseconds linger = std::chrono::seconds(2);          // for what a refused client is still sending
  Milliseconds shutdown_grace = std::chrono::seconds(5);  // for replies under way when the server stops
};

struct ListenerStats {
  std::map<int, int64_t> requests;  // by status
  int64_t connections = 0;          // open now
  int64_t refused_connections = 0;
};

struct Hooks {
  std::function<Reply(const Request&)> handle;  // on some thread; must not throw
  // The reply to a request that is refused before `handle` sees it, or whose reply could not be made. On some
  // thread.
  std::function<Response(const Request&, int status, const std::string& message)> problem;
  std::function<bool(const std::string& path)> is_public;  // needs no key
  // `handle` answers this at once, and so may be called on the thread of the connections: the reply comes
  // also while all workers unpack large pictures.
  std::function<bool(const std::string& path)> is_quick = {};
  std::function<void(const std::string& line)> log = {};  // JSON, one line without its end
};

class Listener {
 public:
  // Listens; connections wait until Run(). Throws Error kUsage.
  Listener(Settings settings, Hooks hooks);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"

  void Run();  // until Stop()

  // From any thread:
  void StopAccepting();
  void Stop();  // Run() returns when the replies under way are sent, or after the grace
  ListenerStats Stats() const;

  // Called with SIGINT or SIGTERM, twice at most; the third ends the process. Before Run().
  void OnSignals(std::function<void(int signal)> handler);

  struct Impl;  // shared with the connections (listener_impl.h)

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image::http

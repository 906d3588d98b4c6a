// What the listener and the connections share. One thread runs `context`, and it alone uses all of this but
// the hooks and the counters.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "server/http/access.h"
#include "server/http/listener.h"

namespace qwen_image::http {

class Connection;

// Runs what `context` has to do until it ends. What throws, as all may when there is no memory, is lost; the
// rest is not.
inline void RunAll(boost::asio::io_context& context) noexcept {
  for (bool ended = false; !ended;) {
    try {
      context.run();
      ended = true;
    } catch (const std::exception&) {
    }
  }
}

// Threads that requests are parsed and pictures unpacked on. Not asio's pool, which ends the process when
// something throws.
class Workers {
 public:
  Workers() {
    for (std::thread& thread : threads_) thread = std::thread([this] { RunAll(context_); });
  }
  ~Workers() { Join(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  boost::asio::io_context& context() { return context_; }
  void Join() {  // when all is done
    work_.reset();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(context_);
  std::array<std::thread, 4> threads_;
};

struct Listener::Impl {
  Impl(Settings settings, Hooks hooks);

  void Listen();
  boost::asio::awaitable<void> Accept();
  boost::asio::awaitable<void> AcceptOne();
  void WaitForSignal();
  void BeginStop();
  void EndIfIdle() {
    if (stopping && connections.empty()) context.stop();
  }

  // Makes room for another client: closes the connection that has kept a place without a request for longest.
  // False: all of them are at work.
  bool CloseLongestSilent();

  void Count(int status) {
    const std::lock_guard lock(stats_mutex);
    ++stats.requests[status];
  }
  void CountConnections() {
    const std::lock_guard lock(stats_mutex);
    stats.connections = static_cast<int64_t>(connections.size());
  }
  void Log(const std::string& line) const {
    if (hooks.log) hooks.log(line);
  }

  const Settings settings;
  const Hooks hooks;
  AccessRules rules;
  std::string url;

  // These stand before `context`, so that they outlive the connections, which end with it at the latest.
  std::set<Connection*> connections;
  size_t places = 0;  // taken by connections that are served, which are told from those that are refused
  int refusing = 0;
  bool stopping = false;
  uint64_t body_bytes = 0;   // of all requests that are being read or answered
  uint64_t reply_bytes = 0;  // of all replies that are being sent
  mutable std::mutex stats_mutex;
  ListenerStats stats;

  boost::asio::io_context context{1};
  boost::asio::ip::tcp::acceptor acceptor{context};
  boost::asio::steady_timer grace{context};
  boost::asio::steady_timer accept_pause{context};
  boost::asio::signal_set signals{context};
  std::function<void(int)> on_signal;
  int signal_count = 0;
  Workers workers;
};

}  // namespace qwen_image::http

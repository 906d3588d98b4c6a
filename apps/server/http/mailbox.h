// From the thread that tells events to a connection's coroutine: the newest event of each kind. An event that
// is not taken in time is replaced, so nothing grows, but those few that are kept.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/http/message.h"

namespace qwen_image::http {

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  struct Contents {
    std::vector<Event> kept;  // in their order
    std::optional<Event> state, detail;
    bool ended = false;  // `state` is the last one
  };

  explicit Mailbox(const boost::asio::any_io_executor& executor) : wake_(executor) {}

  // The handle of `source`; null: it tells nothing.
  std::shared_ptr<void> ListenTo(const EventSource& source);

  // The rest on the connection's thread only.
  Contents Take();
  void Wake() { wake_.cancel(); }
  // Until something comes or Wake() is called; false: nothing in this time.
  boost::asio::awaitable<bool> Wait(std::chrono::milliseconds at_most);

 private:
  void Put(Event event);

  boost::asio::steady_timer wake_;
  std::mutex mutex_;
  Contents contents_;
  bool posted_ = false;
};

}  // namespace qwen_image::http

// From the thread that draws to a connection's coroutine: the last state of a job and the last preview. What
// is not taken in time is replaced, so nothing grows.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "jobs.h"

namespace qwen_image::server {

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  struct Contents {
    std::optional<Job> job;  // as of the last event
    std::string preview;     // PNG
    bool ended = false;
  };

  explicit Mailbox(const boost::asio::any_io_executor& executor) : wake_(executor) {}

  // Null: there is no such job.
  std::shared_ptr<Jobs::Subscription> SubscribeTo(Jobs& jobs, const std::string& id);

  // The rest on the connection's thread only.
  Contents Take();
  void Wake() { wake_.cancel(); }
  // Until something comes or Wake() is called; false: nothing in this time.
  boost::asio::awaitable<bool> Wait(std::chrono::milliseconds at_most);

 private:
  void Put(const Job& job, const JobEvent& event);

  boost::asio::steady_timer wake_;
  std::mutex mutex_;
  Contents contents_;
  bool posted_ = false;
};

}  // namespace qwen_image::server

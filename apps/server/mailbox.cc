#include "mailbox.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace qwen_image::server {

namespace asio = boost::asio;

std::shared_ptr<Jobs::Subscription> Mailbox::SubscribeTo(Jobs& jobs, const std::string& id) {
  return jobs.Subscribe(
      id, [self = shared_from_this()](const Job& job, const JobEvent& event) { self->Put(job, event); });
}

void Mailbox::Put(const Job& job, const JobEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event.kind == JobEvent::Kind::kPreview) {
    contents_.preview = event.preview_png;
  } else {
    contents_.job = job;
    contents_.ended = event.kind == JobEvent::Kind::kEnd;
  }
  if (std::exchange(posted_, true)) return;
  asio::post(wake_.get_executor(), [self = shared_from_this()] { self->Wake(); });
}

Mailbox::Contents Mailbox::Take() {
  const std::lock_guard lock(mutex_);
  posted_ = false;
  return std::exchange(contents_, {});
}

asio::awaitable<bool> Mailbox::Wait(std::chrono::milliseconds at_most) {
  using Clock = asio::steady_timer::clock_type;
  if (at_most == std::chrono::milliseconds::max()) {
    wake_.expires_at(Clock::time_point::max());
  } else {
    wake_.expires_after(at_most);
  }
  boost::system::error_code error;
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
  co_return static_cast<bool>(error);  // woken
}

}  // namespace qwen_image::server

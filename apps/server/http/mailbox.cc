#include "server/http/mailbox.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace qwen_image::http {

namespace asio = boost::asio;

std::shared_ptr<void> Mailbox::ListenTo(const EventSource& source) {
  return source([self = shared_from_this()](Event event) { self->Put(std::move(event)); });
}

void Mailbox::Put(Event event) {
  const std::lock_guard lock(mutex_);
  if (event.kind == Event::Kind::kDetail) {
    contents_.detail = std::move(event);
  } else if (event.kind == Event::Kind::kKept) {
    contents_.kept.push_back(std::move(event));
  } else {
    contents_.ended = event.kind == Event::Kind::kEnd;
    contents_.state = std::move(event);
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

}  // namespace qwen_image::http

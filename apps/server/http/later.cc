// The replies of a connection that take their time: while they are waited for, the client may leave.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "files/text.h"
#include "server/http/connection.h"
#include "server/http/mailbox.h"
#include "server/http/wire.h"

namespace qwen_image::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kClientLeft = 499;  // the status in the log; nobody gets it

// Runs on a worker, since it reads and packs pictures: the thread of the connections must not wait for that.
asio::awaitable<Response> CallReply(const Hooks& hooks, const LaterReply& later, const Request& request) {
  try {
    co_return later.reply();
  } catch (const std::bad_alloc&) {
    co_return hooks.problem(request, 503, kNoMemory);
  } catch (const std::exception& error) {
    co_return hooks.problem(request, 500, Printable(error.what()));
  }
}

// As CallReply: pictures may be read and packed for it.
asio::awaitable<std::string> TextOf(const Mailbox::Contents& contents) {
  std::string text;
  for (const Event& event : contents.kept) text += EventText(event);
  if (contents.state) text += EventText(*contents.state);
  if (contents.detail && !contents.ended) text += EventText(*contents.detail);
  co_return text;
}

}  // namespace

void Connection::StartWatching(const asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox) {
  stream_.expires_never();
  watching_ = true;
  gone_ = false;
  asio::co_spawn(executor, Watch(std::move(mailbox)), asio::detached);
}

// Reads ahead, only to notice when the client leaves. One that closes its sending side alone is taken to have
// left, too; HTTP clients do not do that.
Connection::Awaitable<void> Connection::Watch(std::shared_ptr<Mailbox> mailbox) {
  const auto keep = shared_from_this();
  error_code error;
  try {
    while (!error && buffer_.size() < kReadAhead) {
      const auto space = buffer_.prepare(4096);
      const size_t bytes =
          co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
      buffer_.commit(bytes);
    }
  } catch (const std::exception&) {  // no memory
  }
  watching_ = false;
  gone_ = error != asio::error::operation_aborted;
  mailbox->Wake();
}

Connection::Awaitable<void> Connection::StopWatching(std::shared_ptr<Mailbox> mailbox) {
  if (watching_) stream_.cancel();
  while (watching_) co_await mailbox->Wait(Settings::Milliseconds::max());
}

Connection::Awaitable<bool> Connection::AnswerLater(Record& record, const LaterReply& later) {
  const auto executor = co_await asio::this_coro::executor;
  const auto mailbox = std::make_shared<Mailbox>(executor);
  auto subscription = mailbox->ListenTo(later.events);
  StartWatching(executor, mailbox);
  bool ended = !subscription;
  while (!ended && !gone_) {
    ended = mailbox->Take().ended;
    if (!ended) co_await mailbox->Wait(Settings::Milliseconds::max());
  }
  subscription = nullptr;
  if (!ended) {
    asio::post(server_.workers.context(), later.client_left);
    Done(record, kClientLeft, 0);
    co_return false;
  }
  co_await StopWatching(mailbox);
  asio::awaitable<Response> call = CallReply(server_.hooks, later, record.request);
  Response response =
      co_await asio::co_spawn(server_.workers.context(), std::move(call), asio::use_awaitable);
  co_return co_await Send(record, std::move(response));
}

Connection::Awaitable<void> Connection::StreamEvents(Record& record, const EventStream& stream) {
  const auto executor = co_await asio::this_coro::executor;
  const auto mailbox = std::make_shared<Mailbox>(executor);
  auto subscription = mailbox->ListenTo(stream.events);
  if (!subscription) {
    co_await Send(record, stream.if_none);
    co_return;
  }
  const std::string header = EventStreamHeader(record.request.id);
  const bool begun = co_await WriteText(header);
  if (!begun || record.is_head) {
    Done(record, begun ? 200 : kClientLeft, 0);
    co_return;
  }
  StartWatching(executor, mailbox);
  size_t bytes = 0;
  bool ended = false;
  while (!ended && !gone_) {
    // Whatever came while the last event was on its way is one event now: slow readers cost no memory.
    const Mailbox::Contents contents = mailbox->Take();
    ended = contents.ended;
    asio::awaitable<std::string> call = TextOf(contents);
    std::string text =
        co_await asio::co_spawn(server_.workers.context(), std::move(call), asio::use_awaitable);
    if (text.empty()) {
      const bool woken = co_await mailbox->Wait(server_.settings.heartbeat);
      if (woken) continue;
      text = ":\n\n";
    }
    HoldReply(text.size());
    const bool written = co_await WriteText(text);
    HoldReply(0);
    if (!written) {
      ended = false;
      break;
    }
    bytes += text.size();
  }
  subscription = nullptr;
  if (!ended && stream.client_left) asio::post(server_.workers.context(), stream.client_left);
  co_await StopWatching(mailbox);
  Done(record, ended ? 200 : kClientLeft, bytes);
}

}  // namespace qwen_image::http

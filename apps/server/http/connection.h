// One client's connection: requests one after the other, each with its deadlines.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/http/listener_impl.h"
#include "server/http/wire.h"

namespace qwen_image::http {

class Mailbox;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;

  // A client that pipelines requests while it waits may send this much ahead.
  static constexpr size_t kReadAhead = 64 << 10;

  using Clock = std::chrono::steady_clock;

  // `refused`: it is beyond the limit and gets no place.
  Connection(Listener::Impl& server, boost::asio::ip::tcp::socket socket, bool refused);
  ~Connection();

  Awaitable<void> Serve();  // or tells a refused one that there are too many
  void CloseIfIdle();
  // Since when it has a place and no whole header of a request; none if it is being served.
  std::optional<Clock::time_point> silent_since() const { return silent_since_; }
  void GiveUpPlace();  // closes it
  // Answers 503 with what is there without any memory, unless it is answering already, and closes it.
  void SayNoMemory() noexcept;

 private:
  // The request under way, and what its reply and its line of the log need to know of it.
  struct Record {
    Request request;
    bool is_head = false, keep_alive = false;
    unsigned version = 11;
    Clock::time_point begin;
    std::string job_id = {};  // of the job that it made or waits for
  };

  Awaitable<void> RefuseBusy();
  // False: the connection ends.
  Awaitable<bool> ServeOne();
  Awaitable<bool> WaitForBytes();
  Awaitable<bool> FillHeader();
  Awaitable<bool> ReadHeader(Parser& parser, Record& record);
  Awaitable<bool> ReadBody(Parser& parser, Record& record);
  Awaitable<bool> Answer(Record& record);
  Awaitable<bool> AnswerLater(Record& record, const LaterReply& later);
  Awaitable<void> StreamEvents(Record& record, const EventStream& stream);
  Awaitable<bool> Send(Record& record, Response response);
  Awaitable<bool> Refuse(Record& record, int status, const std::string& message);
  Awaitable<bool> RefuseUnread(Record& record, boost::system::error_code error);
  Awaitable<bool> WriteText(const std::string& text);
  Awaitable<void> Linger();
  void StartWatching(const boost::asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox);
  Awaitable<void> Watch(std::shared_ptr<Mailbox> mailbox);
  Awaitable<void> StopWatching(std::shared_ptr<Mailbox> mailbox);
  std::string_view Unparsed() const;
  void HoldBody(uint64_t bytes);   // takes so much of the room that all bodies share
  void HoldReply(uint64_t bytes);  // … that all replies share
  void Done(const Record& record, int status, size_t bytes);

  Listener::Impl& server_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::string client_, local_address_;
  uint64_t held_bytes_ = 0, held_reply_bytes_ = 0;
  const bool refused_;
  bool has_place_ = false;
  std::optional<Clock::time_point> silent_since_;
  bool first_ = true, idle_ = false, watching_ = false, gone_ = false, replying_ = false;
};

}  // namespace qwen_image::http

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

namespace qwen_image::http {

class Mailbox;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;

  Connection(Listener::Impl& server, boost::asio::ip::tcp::socket socket);
  ~Connection();

  Awaitable<void> Serve();
  Awaitable<void> RefuseBusy();  // there are too many
  void CloseIfIdle();
  void Close();

 private:
  // What is known of the request under way, for its log line.
  struct Record {
    Request request;
    bool is_head = false, keep_alive = false;
    unsigned version = 11;
    std::chrono::steady_clock::time_point begin;
    std::string job_id = {};  // of the job that it made or waits for
  };

  Awaitable<bool> ServeOne();  // false: the connection ends
  Awaitable<bool> WaitForBytes();
  Awaitable<bool> Answer(Record& record);
  Awaitable<bool> AnswerLater(Record& record, const LaterReply& later);
  Awaitable<void> StreamEvents(Record& record, const EventStream& stream);
  Awaitable<bool> Send(Record& record, Response response);
  Awaitable<bool> Refuse(Record& record, int status, const std::string& message);
  Awaitable<bool> WriteText(const std::string& text);
  Awaitable<void> Linger();
  Awaitable<void> Watch(std::shared_ptr<Mailbox> mailbox);
  Awaitable<void> StopWatching(std::shared_ptr<Mailbox> mailbox);
  void HoldBody(uint64_t bytes);  // of the server's room for all bodies
  void Done(const Record& record, int status, size_t bytes);

  Listener::Impl& server_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::string client_, local_address_;
  uint64_t held_bytes_ = 0;
  bool first_ = true, idle_ = false, watching_ = false, gone_ = false;
};

}  // namespace qwen_image::http

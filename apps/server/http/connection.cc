#include "server/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <cmath>

#include "files/json.h"
#include "files/random_hex.h"
#include "files/text.h"
#include "server/http/framing.h"
#include "server/http/log.h"
#include "server/http/spare_memory.h"
#include "server/http/target.h"
#include "server/http/wire.h"

namespace qwen_image::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr size_t kMaxDiscarded = 8 << 20;
constexpr size_t kIdDigits = 16;          // of a request
constexpr size_t kSmallReply = 16 << 10;  // always has room: there are not more of them than connections

// Room for a header, and for a piece of the body.
size_t BufferBytes(const Settings& settings) {
  return settings.max_header_bytes + 2 * Connection::kReadAhead;
}

asio::awaitable<Reply> Call(const Hooks& hooks, const Request& request) { co_return hooks.handle(request); }

}  // namespace

Connection::Connection(Listener::Impl& server, asio::ip::tcp::socket socket, bool refused)
    : server_(server), stream_(std::move(socket)), buffer_(BufferBytes(server.settings)), refused_(refused) {
  error_code ignored;
  const auto remote = stream_.socket().remote_endpoint(ignored);
  client_ = fmt::format("{}:{}", remote.address().to_string(), remote.port());
  local_address_ = stream_.socket().local_endpoint(ignored).address().to_string();
  // Events are small, and are to be seen at once.
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  if (server.settings.send_buffer_bytes > 0)
    stream_.socket().set_option(asio::socket_base::send_buffer_size(server.settings.send_buffer_bytes),
                                ignored);
  server_.connections.insert(this);
  has_place_ = !refused_;
  if (has_place_) ++server_.places;
  if (refused_) ++server_.refusing;
  server_.CountConnections();
}

Connection::~Connection() {
  HoldBody(0);
  HoldReply(0);
  if (has_place_) --server_.places;
  if (refused_) --server_.refusing;
  server_.connections.erase(this);
  server_.CountConnections();
}

void Connection::HoldBody(uint64_t bytes) {
  server_.body_bytes += bytes - held_bytes_;
  held_bytes_ = bytes;
}

void Connection::HoldReply(uint64_t bytes) {
  server_.reply_bytes += bytes - held_reply_bytes_;
  held_reply_bytes_ = bytes;
}

void Connection::CloseIfIdle() {
  if (idle_) stream_.close();
}

void Connection::GiveUpPlace() {
  if (std::exchange(has_place_, false)) --server_.places;
  silent_since_.reset();
  stream_.close();
}

Connection::Awaitable<void> Connection::Serve() {
  if (refused_) co_return co_await RefuseBusy();
  bool more = true;
  while (more) {
    more = co_await ServeOne();
    first_ = false;
  }
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
}

Connection::Awaitable<bool> Connection::WaitForBytes() {
  if (buffer_.size() > 0) co_return true;
  if (server_.stopping) co_return false;
  idle_ = true;
  stream_.expires_after(first_ ? server_.settings.header_deadline : server_.settings.idle_deadline);
  error_code error;
  const auto space = buffer_.prepare(4096);
  const size_t bytes =
      co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
  idle_ = false;
  buffer_.commit(bytes);
  co_return !error;
}

Connection::Awaitable<bool> Connection::ServeOne() {
  RefillSpareMemory();
  silent_since_ = Clock::now();
  const bool has_bytes = co_await WaitForBytes();
  if (!has_bytes) co_return false;
  Record record{.request = {.id = RandomHex(kIdDigits)}, .begin = Clock::now()};
  Parser parser;
  parser.header_limit(server_.settings.max_header_bytes);
  parser.body_limit(server_.settings.max_body_bytes);

  // 1. The header, and who asks.
  const bool may_ask = co_await ReadHeader(parser, record);
  if (!may_ask) co_return false;

  // 2. The body.
  const bool is_whole = co_await ReadBody(parser, record);
  if (!is_whole) co_return false;

  // 3. The reply.
  co_return co_await Answer(record);
}

std::string_view Connection::Unparsed() const {
  const auto bytes = buffer_.cdata();
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads the whole header before any of it is parsed, to see how it was written.
Connection::Awaitable<bool> Connection::FillHeader() {
  error_code error;
  while (!error && buffer_.size() < server_.settings.max_header_bytes && HeaderGoesOn(Unparsed())) {
    const auto space = buffer_.prepare(4096);
    const size_t bytes =
        co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(bytes);
  }
  co_return !error;
}

Connection::Awaitable<bool> Connection::ReadHeader(Parser& parser, Record& record) {
  // The deadline of the first request began when the client connected.
  if (!first_) stream_.expires_after(server_.settings.header_deadline);
  const bool filled = co_await FillHeader();
  silent_since_.reset();
  if (!filled) co_return false;
  if (HasFoldedLine(Unparsed()))
    co_return co_await Refuse(record, 400, "a line of the header goes on in the next one; write it in one");
  error_code error;
  co_await beast::http::async_read_header(stream_, buffer_, parser,
                                          asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return co_await RefuseUnread(record, error);
  const auto& message = parser.get();
  record.version = message.version();
  record.request.method = std::string(message.method_string());
  record.is_head = record.request.method == "HEAD";
  if (record.is_head) record.request.method = "GET";
  const auto target = ParseTarget(message.target());
  if (target) {
    record.request.path = target->path;
    record.request.query = target->query;
  }
  const RequestHead head = HeadOf(parser, local_address_, target && server_.hooks.is_public(target->path));
  const auto refusal = CheckAccess(server_.rules, head);
  if (refusal) co_return co_await Refuse(record, refusal->status, refusal->message);
  if (!target) co_return co_await Refuse(record, 400, "the address is not one of this server's");
  const auto encoding = CheckEncoding(parser);
  if (encoding) co_return co_await Refuse(record, encoding->status, encoding->message);
  record.request.content_type = Header(parser, "Content-Type");
  record.request.origin = head.origin.value_or("http://" + head.hosts.front());
  co_return true;
}

Connection::Awaitable<bool> Connection::ReadBody(Parser& parser, Record& record) {
  const std::string expect = Header(parser, "Expect");
  if (!expect.empty() && !parser.is_done()) {
    if (!beast::iequals(expect, "100-continue"))
      co_return co_await Refuse(record, 417, "the only expectation that is understood is 100-continue");
    const bool written = co_await WriteText("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
    replying_ = false;  // "100 Continue" is no reply yet
  }
  bool has_room = true;
  try {  // here, because what Beast's own reading throws ends the connection without a word
    parser.get().body().reserve(parser.content_length().value_or(0));
  } catch (const std::bad_alloc&) {
    has_room = false;
  }
  if (!has_room) co_return co_await Refuse(record, 503, kNoMemory);
  ChunkMeter meter(server_.settings.max_header_bytes);
  parser.on_chunk_header(meter);
  parser.eager(true);
  stream_.expires_after(server_.settings.body_deadline);
  while (!parser.is_done()) {
    error_code error;
    co_await beast::http::async_read_some(stream_, buffer_, parser,
                                          asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return co_await RefuseUnread(record, error);
    HoldBody(parser.get().body().size());
    if (server_.body_bytes > server_.settings.max_bodies_bytes) {
      std::exchange(parser.get().body(), std::string());  // an assignment would keep the room
      HoldBody(0);                                        // now, so that the others are not refused for it
      co_return co_await Refuse(record, 503,
                                "other requests with large pictures are being read, and there is no room for "
                                "this one yet; try again in a moment");
    }
  }
  record.request.body = std::move(parser.get().body());
  record.keep_alive = parser.keep_alive();
  co_return true;
}

Connection::Awaitable<bool> Connection::Answer(Record& record) {
  Reply reply;
  if (server_.hooks.is_quick && server_.hooks.is_quick(record.request.path)) {
    reply = server_.hooks.handle(record.request);
  } else {
    asio::awaitable<Reply> call = Call(server_.hooks, record.request);
    reply = co_await asio::co_spawn(server_.workers.context(), std::move(call), asio::use_awaitable);
  }
  std::exchange(record.request.body, std::string());  // an assignment would keep the room
  HoldBody(0);  // a request that waits for its job holds no more than its job does
  if (auto* response = std::get_if<Response>(&reply)) co_return co_await Send(record, std::move(*response));
  if (auto* later = std::get_if<LaterReply>(&reply)) {
    record.job_id = later->job_id;
    co_return co_await AnswerLater(record, *later);
  }
  record.job_id = std::get<EventStream>(reply).job_id;
  co_await StreamEvents(record, std::get<EventStream>(reply));
  co_return false;
}

Connection::Awaitable<bool> Connection::Send(Record& record, Response response) {
  if (response.body.size() > kSmallReply && server_.reply_bytes > 0 &&
      server_.reply_bytes + response.body.size() > server_.settings.max_replies_bytes) {
    response = server_.hooks.problem(record.request, 503,
                                     "other clients are slow to take their replies, and there is no room for "
                                     "this one yet; try again in a moment");
    response.headers.emplace_back("Retry-After", "1");
  }
  replying_ = true;
  HoldReply(response.body.size());
  const int status = response.status;
  if (!response.job_id.empty()) record.job_id = response.job_id;
  const size_t bytes = record.is_head ? 0 : response.body.size();
  const bool keep_alive = record.keep_alive && !server_.stopping;
  auto message =
      MakeResponse(std::move(response), record.request, record.is_head, keep_alive, record.version);
  stream_.expires_after(server_.settings.write_deadline);
  error_code error;
  co_await beast::http::async_write(stream_, message, asio::redirect_error(asio::use_awaitable, error));
  HoldReply(0);
  replying_ = static_cast<bool>(error);
  Done(record, status, bytes);
  co_return keep_alive && !error;
}

// What the client may still be sending is read and thrown away for a while: if it were left unread, the reset
// of the connection could overtake the reply.
Connection::Awaitable<bool> Connection::Refuse(Record& record, int status, const std::string& message) {
  record.keep_alive = false;
  Response response = server_.hooks.problem(record.request, status, message);
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  co_await Send(record, std::move(response));
  co_await Linger();
  co_return false;
}

Connection::Awaitable<bool> Connection::RefuseUnread(Record& record, error_code error) {
  const auto refusal = ReadingRefusal(error, server_.settings);
  if (!refusal) co_return false;
  co_return co_await Refuse(record, refusal->status, refusal->message);
}

Connection::Awaitable<void> Connection::Linger() {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(server_.settings.linger);
  buffer_.clear();
  const size_t most = std::max<size_t>(kMaxDiscarded, server_.settings.max_body_bytes);
  for (size_t discarded = 0; !error && discarded < most;) {
    const auto space = buffer_.prepare(kReadAhead);
    discarded += co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
  }
}

Connection::Awaitable<void> Connection::RefuseBusy() {
  Record record{.request = {.id = RandomHex(kIdDigits)}, .begin = Clock::now()};
  Response response =
      server_.hooks.problem(record.request, 503, "too many connections; try again in a moment");
  response.headers.emplace_back("Retry-After", "1");
  co_await Send(record, std::move(response));
  co_await Linger();
}

void Connection::SayNoMemory() noexcept {
  constexpr std::string_view kReply =
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  if (!replying_ && !silent_since_)
    send(stream_.socket().native_handle(), kReply.data(), kReply.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  stream_.close();
}

Connection::Awaitable<bool> Connection::WriteText(const std::string& text) {
  replying_ = true;
  stream_.expires_after(server_.settings.write_deadline);
  error_code error;
  co_await asio::async_write(stream_, asio::buffer(text), asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

void Connection::Done(const Record& record, int status, size_t bytes) {
  server_.Count(status);
  const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - record.begin).count();
  // Neither prompts nor keys are in here: they come in bodies and in a header.
  Json line = {{"request_id", record.request.id},
               {"method", record.is_head ? "HEAD" : Printable(record.request.method, 32)},
               {"path", Printable(record.request.path)},
               {"status", status},
               {"ms", std::round(milliseconds * 10) / 10},
               {"bytes", bytes},
               {"client", client_}};
  if (!record.job_id.empty()) line["job"] = Printable(record.job_id, 64);
  server_.Log(LogLine("request", std::move(line)));
}

}  // namespace qwen_image::http

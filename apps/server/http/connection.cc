#include "server/http/connection.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cmath>

#include "files/json.h"
#include "files/random_hex.h"
#include "files/text.h"
#include "server/http/log.h"
#include "server/http/mailbox.h"
#include "server/http/target.h"

namespace qwen_image::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

// A client that pipelines requests while it waits may send this much ahead.
constexpr size_t kReadAhead = 64 << 10;
constexpr size_t kMaxDiscarded = 8 << 20;
constexpr size_t kIdDigits = 16;  // of a request
constexpr int kClientLeft = 499;  // for the log; nobody gets it

// Room for a header, and for a piece of the body.
size_t BufferBytes(const Settings& settings) { return settings.max_header_bytes + 2 * kReadAhead; }

int StatusOf(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

std::string MessageOf(int status, const Settings& settings) {
  if (status == 431)
    return fmt::format("the header of the request is too large; at most {} KiB are taken",
                       settings.max_header_bytes >> 10);
  if (status == 413)
    return fmt::format(
        "the body of the request is too large: at most {} MiB are taken, with all its pictures; make them "
        "smaller, "
        "or send them as JPEG",
        settings.max_body_bytes >> 20);
  return "this is no HTTP request";
}

// Errors of the parser, as opposed to those of the connection.
bool IsBadRequest(const error_code& error) {
  return error.category() == error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

std::string Header(const Parser& parser, beast::string_view name) {
  const auto value = parser.get()[name];
  return {value.data(), value.size()};
}

RequestHead HeadOf(const Parser& parser, const std::string& local_address, bool is_public) {
  RequestHead head{.method = std::string(parser.get().method_string()),
                   .hosts = {},
                   .origin = {},
                   .fetch_site = Header(parser, "Sec-Fetch-Site"),
                   .fetch_mode = Header(parser, "Sec-Fetch-Mode"),
                   .authorization = Header(parser, "Authorization"),
                   .local_address = local_address,
                   .is_public = is_public};
  const auto [begin, end] = parser.get().equal_range(http::field::host);
  for (auto field = begin; field != end; ++field) head.hosts.emplace_back(field->value());
  if (parser.get().find(http::field::origin) != parser.get().end()) head.origin = Header(parser, "Origin");
  return head;
}

// No source but this server, for whatever a browser makes of a reply.
constexpr std::pair<const char*, const char*> kSafety[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src "
     "'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
};

http::response<http::string_body> MakeResponse(Response from, const Request& request, bool is_head,
                                               bool keep_alive, unsigned version) {
  http::response<http::string_body> response(static_cast<http::status>(from.status), version);
  for (const auto& [name, value] : kSafety) response.set(name, value);
  response.set("X-Request-Id", request.id);
  response.set(http::field::cache_control, "no-store");
  if (!from.content_type.empty()) response.set(http::field::content_type, from.content_type);
  for (const auto& [name, value] : from.headers) response.set(name, value);
  response.keep_alive(keep_alive);
  if (from.status != 204) response.content_length(from.body.size());
  if (!is_head) response.body() = std::move(from.body);
  return response;
}

// The stream ends with the connection, so it needs no length.
std::string EventStreamHeader(const std::string& request_id) {
  std::string text =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n"
      "X-Accel-Buffering: no\r\n";  // a proxy must not hold events back
  for (const auto& [name, value] : kSafety) text += fmt::format("{}: {}\r\n", name, value);
  return text + fmt::format("X-Request-Id: {}\r\n\r\n", request_id);
}

std::string EventText(const Event& event) {
  return fmt::format("event: {}\ndata: {}\n\n", event.name, event.data());
}

asio::awaitable<Reply> Call(const Hooks& hooks, const Request& request) { co_return hooks.handle(request); }

// Pictures are read and packed into it, so not on the thread of the connections.
asio::awaitable<Response> CallReply(const Hooks& hooks, const LaterReply& later, const Request& request) {
  try {
    co_return later.reply();
  } catch (const std::exception& error) {
    co_return hooks.problem(request, 500, Printable(error.what()));
  }
}

}  // namespace

Connection::Connection(Listener::Impl& server, asio::ip::tcp::socket socket)
    : server_(server), stream_(std::move(socket)), buffer_(BufferBytes(server.settings)) {
  error_code ignored;
  const auto remote = stream_.socket().remote_endpoint(ignored);
  client_ = fmt::format("{}:{}", remote.address().to_string(), remote.port());
  local_address_ = stream_.socket().local_endpoint(ignored).address().to_string();
  stream_.socket().set_option(asio::ip::tcp::no_delay(true),
                              ignored);  // events are small and want to be seen
  if (server.settings.send_buffer_bytes > 0)
    stream_.socket().set_option(asio::socket_base::send_buffer_size(server.settings.send_buffer_bytes),
                                ignored);
  server_.connections.insert(this);
  server_.CountConnections();
}

Connection::~Connection() {
  HoldBody(0);
  server_.connections.erase(this);
  server_.CountConnections();
}

void Connection::HoldBody(uint64_t bytes) {
  server_.body_bytes += bytes - held_bytes_;
  held_bytes_ = bytes;
}

void Connection::CloseIfIdle() {
  if (idle_) Close();
}

void Connection::Close() { stream_.close(); }

Connection::Awaitable<void> Connection::Serve() {
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
  const bool has_bytes = co_await WaitForBytes();
  if (!has_bytes) co_return false;
  Record record{.request = {.id = RandomHex(kIdDigits)}, .begin = std::chrono::steady_clock::now()};
  const Settings& settings = server_.settings;

  // 1. The header, and who asks.
  Parser parser;
  parser.header_limit(settings.max_header_bytes);
  parser.body_limit(settings.max_body_bytes);
  if (!first_) stream_.expires_after(settings.header_deadline);  // that of the first runs since it connected
  error_code error;
  co_await http::async_read_header(stream_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (error) {
    if (!IsBadRequest(error)) co_return false;
    const int status = StatusOf(error);
    co_return co_await Refuse(record, status, MessageOf(status, settings));
  }
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
  record.request.content_type = Header(parser, "Content-Type");
  record.request.origin = head.origin.value_or("http://" + head.hosts.front());

  // 2. The body.
  const std::string expect = Header(parser, "Expect");
  if (!expect.empty() && !parser.is_done()) {
    if (!beast::iequals(expect, "100-continue"))
      co_return co_await Refuse(record, 417, "the only expectation that is understood is 100-continue");
    const bool written = co_await WriteText("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
  }
  parser.eager(true);
  stream_.expires_after(settings.body_deadline);
  while (!parser.is_done()) {
    co_await http::async_read_some(stream_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      if (!IsBadRequest(error)) co_return false;
      const int status = StatusOf(error);
      co_return co_await Refuse(record, status, MessageOf(status, settings));
    }
    HoldBody(parser.get().body().size());
    if (server_.body_bytes > settings.max_bodies_bytes) {
      std::exchange(parser.get().body(), std::string());  // an assignment would keep the room
      HoldBody(0);                                        // now, so that the others are not refused for it
      co_return co_await Refuse(record, 503,
                                "other requests with large pictures are being read, and there is no room for "
                                "this one yet; try again in a moment");
    }
  }
  record.request.body = std::move(parser.get().body());
  record.keep_alive = parser.keep_alive();

  // 3. The reply.
  co_return co_await Answer(record);
}

Connection::Awaitable<bool> Connection::Answer(Record& record) {
  Reply reply;
  if (server_.hooks.is_quick && server_.hooks.is_quick(record.request.path)) {
    reply = server_.hooks.handle(record.request);
  } else {
    asio::awaitable<Reply> call = Call(server_.hooks, record.request);
    reply = co_await asio::co_spawn(server_.workers, std::move(call), asio::use_awaitable);
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
  const int status = response.status;
  if (!response.job_id.empty()) record.job_id = response.job_id;
  const size_t bytes = record.is_head ? 0 : response.body.size();
  const bool keep_alive = record.keep_alive && !server_.stopping;
  auto message =
      MakeResponse(std::move(response), record.request, record.is_head, keep_alive, record.version);
  stream_.expires_after(server_.settings.write_deadline);
  error_code error;
  co_await http::async_write(stream_, message, asio::redirect_error(asio::use_awaitable, error));
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

Connection::Awaitable<void> Connection::Linger() {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(server_.settings.linger);
  buffer_.clear();
  for (size_t discarded = 0; !error && discarded < kMaxDiscarded;) {
    const auto space = buffer_.prepare(kReadAhead);
    discarded += co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
  }
}

Connection::Awaitable<void> Connection::RefuseBusy() {
  Record record{.request = {.id = RandomHex(kIdDigits)}, .begin = std::chrono::steady_clock::now()};
  Response response =
      server_.hooks.problem(record.request, 503, "too many connections; try again in a moment");
  response.headers.emplace_back("Retry-After", "1");
  co_await Send(record, std::move(response));
  co_await Linger();
}

Connection::Awaitable<bool> Connection::WriteText(const std::string& text) {
  stream_.expires_after(server_.settings.write_deadline);
  error_code error;
  co_await asio::async_write(stream_, asio::buffer(text), asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

// Reads ahead, only to notice when the client leaves. One that closes its sending side alone is taken to have
// left, too; HTTP clients do not do that.
Connection::Awaitable<void> Connection::Watch(std::shared_ptr<Mailbox> mailbox) {
  const auto keep = shared_from_this();
  error_code error;
  while (!error && buffer_.size() < kReadAhead) {
    const auto space = buffer_.prepare(4096);
    const size_t bytes =
        co_await stream_.async_read_some(space, asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(bytes);
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
  stream_.expires_never();
  watching_ = true;
  gone_ = false;
  asio::co_spawn(executor, Watch(mailbox), asio::detached);
  bool ended = !subscription;
  while (!ended && !gone_) {
    ended = mailbox->Take().ended;
    if (!ended) co_await mailbox->Wait(Settings::Milliseconds::max());
  }
  subscription = nullptr;
  if (!ended) {
    asio::post(server_.workers, later.client_left);
    Done(record, kClientLeft, 0);
    co_return false;
  }
  co_await StopWatching(mailbox);
  asio::awaitable<Response> call = CallReply(server_.hooks, later, record.request);
  Response response = co_await asio::co_spawn(server_.workers, std::move(call), asio::use_awaitable);
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
  stream_.expires_never();
  watching_ = true;
  gone_ = false;
  asio::co_spawn(executor, Watch(mailbox), asio::detached);
  size_t bytes = 0;
  bool ended = false;
  while (!ended && !gone_) {
    // Whatever came while the last event was on its way is one event now: slow readers cost no memory.
    const Mailbox::Contents contents = mailbox->Take();
    ended = contents.ended;
    std::string text;
    if (contents.state) text += EventText(*contents.state);
    if (contents.detail && !ended) text += EventText(*contents.detail);
    if (text.empty()) {
      const bool woken = co_await mailbox->Wait(server_.settings.heartbeat);
      if (woken) continue;
      text = ":\n\n";
    }
    const bool written = co_await WriteText(text);
    if (!written) break;
    bytes += text.size();
  }
  subscription = nullptr;
  co_await StopWatching(mailbox);
  Done(record, ended ? 200 : kClientLeft, bytes);
}

void Connection::Done(const Record& record, int status, size_t bytes) {
  server_.Count(status);
  const double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - record.begin).count();
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

#include "server/http/wire.h"

#include <fmt/format.h>

#include <utility>

namespace qwen_image::http {
namespace {

namespace beast = boost::beast;
using boost::system::error_code;

int StatusOf(const error_code& error) {
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow) return 431;
  if (error == beast::http::error::body_limit) return 413;
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
  return "this is not an HTTP request";
}

// Errors of the parser, as opposed to those of the connection.
bool IsBadRequest(const error_code& error) {
  return error.category() == error_code(beast::http::error::bad_method).category() &&
         error != beast::http::error::end_of_stream && error != beast::http::error::partial_message;
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

}  // namespace

std::optional<Refusal> ReadingRefusal(const error_code& error, const Settings& settings) {
  if (!IsBadRequest(error)) return std::nullopt;
  const int status = StatusOf(error);
  return Refusal{status, MessageOf(status, settings)};
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
  const auto [begin, end] = parser.get().equal_range(beast::http::field::host);
  for (auto field = begin; field != end; ++field) head.hosts.emplace_back(field->value());
  if (parser.get().find(beast::http::field::origin) != parser.get().end())
    head.origin = Header(parser, "Origin");
  return head;
}

WireResponse MakeResponse(Response from, const Request& request, bool is_head, bool keep_alive,
                          unsigned version) {
  WireResponse response(static_cast<beast::http::status>(from.status), version);
  for (const auto& [name, value] : kSafety) response.set(name, value);
  response.set("X-Request-Id", request.id);
  response.set(beast::http::field::cache_control, "no-store");
  if (!from.content_type.empty()) response.set(beast::http::field::content_type, from.content_type);
  for (const auto& [name, value] : from.headers) response.set(name, value);
  response.keep_alive(keep_alive);
  if (from.status != 204) response.content_length(from.body.size());
  if (!is_head) response.body() = std::move(from.body);
  return response;
}

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

}  // namespace qwen_image::http

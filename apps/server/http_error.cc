#include "http_error.h"

#include "files/json.h"

namespace qwen_image::server {

int HttpStatus(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kBadInput:
      return 400;
    case ErrorKind::kOutOfMemory:
    case ErrorKind::kInterrupted:
      return 503;
    case ErrorKind::kCannotWrite:
      return 507;
    case ErrorKind::kInternal:
      break;
  }
  return 500;
}

const char* ErrorType(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

HttpResponse ErrorResponse(const HttpRequest& request, int status, const std::string& type,
                           const std::string& message, const std::string& code) {
  const Json error = {{"message", message},
                      {"type", type},
                      {"param", nullptr},
                      {"code", code.empty() ? Json() : Json(code)},
                      {"request_id", request.id}};
  // Whatever a message quotes, the reply is valid JSON.
  return {.status = status,
          .body = Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

HttpResponse ErrorResponse(const HttpRequest& request, const Error& error) {
  const int status = HttpStatus(error.kind());
  return ErrorResponse(request, status, ErrorType(status), error.message());
}

}  // namespace qwen_image::server

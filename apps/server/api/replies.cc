#include "server/api/replies.h"

#include <fmt/format.h>

#include <string_view>

#include "files/text.h"
#include "server/api/fields.h"

namespace qwen_image::api {
namespace {

// The prefix decides, not the route: a request may be refused before it has come to one.
constexpr std::string_view kA1111Prefix = "/sdapi/";

}  // namespace

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
    case ErrorKind::kMachine:
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

http::Response ErrorResponse(const http::Request& request, int status, const std::string& type,
                             const std::string& message, const std::string& code, const std::string& param) {
  const Json error = {{"message", message},
                      {"type", type},
                      {"param", param.empty() ? Json() : Json(param)},
                      {"code", code.empty() ? Json() : Json(code)},
                      {"request_id", request.id}};
  Json body = {{"error", error}};
  if (request.path.starts_with(kA1111Prefix)) body["detail"] = message;
  return JsonResponse(body, status);
}

http::Response ErrorResponse(const http::Request& request, const Error& error) {
  const int status = HttpStatus(error.kind());
  const auto* field = dynamic_cast<const FieldError*>(&error);
  return ErrorResponse(request, status, ErrorType(status), error.message(), "", field ? field->field() : "");
}

http::Response Problem(const http::Request& request, int status, const std::string& message) {
  return ErrorResponse(request, status, ErrorType(status), message);
}

std::string JsonText(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

http::Response JsonResponse(const Json& json, int status) {
  return {.status = status, .body = JsonText(json)};
}

std::optional<http::Response> OtherMethod(const http::Request& request,
                                          const std::vector<std::string>& methods) {
  std::string allow = "OPTIONS";
  for (const std::string& method : methods) {
    if (request.method == method) return std::nullopt;
    allow += (method == "GET" ? ", GET, HEAD" : ", " + method);
  }
  http::Response response =
      request.method == "OPTIONS"
          ? http::Response{.status = 204, .content_type = "", .body = ""}
          : Problem(request, 405,
                    fmt::format("{} is not possible here; {} are", Quoted(request.method), allow));
  response.headers.emplace_back("Allow", allow);
  return response;
}

}  // namespace qwen_image::api

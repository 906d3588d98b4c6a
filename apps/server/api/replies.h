// Replies as JSON. Errors have the shape of OpenAI's API: {"error": {"message", "type", "param", "code"}}; on
// the routes of AUTOMATIC1111's API also the one of theirs: {"detail"}.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "files/json.h"
#include "qwen_image/error.h"
#include "server/http/message.h"

namespace qwen_image::api {

// kBadInput is taken for a broken body or picture of the request, not for a file of this machine.
int HttpStatus(ErrorKind kind);
// What OpenAI calls errors of this status: "invalid_request_error", …
const char* ErrorType(int status);

http::Response ErrorResponse(const http::Request& request, int status, const std::string& type,
                             const std::string& message, const std::string& code = "",
                             const std::string& param = "");
http::Response ErrorResponse(const http::Request& request, const Error& error);
// With the type of its status, for those that need no more than a message.
http::Response Problem(const http::Request& request, int status, const std::string& message);

std::string JsonText(const Json& json);  // one line of valid JSON, whatever bytes its texts quote
http::Response JsonResponse(const Json& json, int status = 200);

// None if the method is one of these. OPTIONS is answered without the headers that would let other sites in.
std::optional<http::Response> OtherMethod(const http::Request& request,
                                          const std::vector<std::string>& methods);

}  // namespace qwen_image::api

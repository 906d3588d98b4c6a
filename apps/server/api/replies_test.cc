#include "server/api/replies.h"

#include <gtest/gtest.h>

#include "files/json.h"
#include "server/api/fields.h"

namespace qwen_image::api {
namespace {

TEST(Replies, HasOpenAisShape) {
  http::Request request;
  request.id = "r7";
  const http::Response response =
      ErrorResponse(request, 404, "invalid_request_error", "no \"such\" job", "gone");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(Json::parse(response.body), Json::parse(R"({"error": {"message": "no \"such\" job",
      "type": "invalid_request_error", "param": null, "code": "gone", "request_id": "r7"}})"));
}

TEST(Replies, HasAutomatic1111sShapeOnItsRoutes) {
  http::Request request;
  request.path = "/sdapi/v1/txt2img";
  for (const int status : {400, 401, 404, 413, 429, 503}) {
    const Json body = Json::parse(ErrorResponse(request, status, "x", "the reason").body);
    EXPECT_EQ(body["detail"], "the reason");
    EXPECT_EQ(body["error"]["message"], "the reason");
  }
  request.path = "/jobs";
  EXPECT_FALSE(Json::parse(ErrorResponse(request, 400, "x", "the reason").body).contains("detail"));
}

TEST(Replies, QuotesThatAreNoUtf8StayJson) {
  const http::Response response = ErrorResponse({}, 400, "invalid_request_error", "\xff\xfe");
  EXPECT_TRUE(Json::parse(response.body)["error"]["code"].is_null());
  EXPECT_EQ(Json::parse(response.body)["error"]["message"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Replies, EveryKindHasItsStatus) {
  EXPECT_EQ(HttpStatus(ErrorKind::kUsage), 400);
  EXPECT_EQ(HttpStatus(ErrorKind::kBadInput), 400);
  EXPECT_EQ(HttpStatus(ErrorKind::kOutOfMemory), 503);
  EXPECT_EQ(HttpStatus(ErrorKind::kInterrupted), 503);
  EXPECT_EQ(HttpStatus(ErrorKind::kCannotWrite), 507);
  EXPECT_EQ(HttpStatus(ErrorKind::kInternal), 500);
  EXPECT_STREQ(ErrorType(400), "invalid_request_error");
  EXPECT_STREQ(ErrorType(401), "authentication_error");
  EXPECT_STREQ(ErrorType(403), "permission_error");
  EXPECT_STREQ(ErrorType(404), "invalid_request_error");
  EXPECT_STREQ(ErrorType(429), "rate_limit_error");
  EXPECT_STREQ(ErrorType(503), "server_error");
  EXPECT_EQ(ErrorResponse({}, Error(ErrorKind::kOutOfMemory, "x")).status, 503);
}

TEST(Replies, AFieldsErrorNamesTheField) {
  const Json body = {{"steps", -1}};
  try {
    Fields(body).Whole("steps", 1, 9);
    FAIL() << "no error";
  } catch (const Error& error) {
    const http::Response response = ErrorResponse({}, error);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(Json::parse(response.body)["error"]["param"], "steps");
  }
}

}  // namespace
}  // namespace qwen_image::api

// Routes under test, without sockets: the embedded model or another, a queue in a folder of its own, replies
// waited for.
#pragma once

#include <semaphore>
#include <string>
#include <variant>

#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "server/api/routes.h"
#include "server/jobs/testing.h"

namespace qwen_image::api {

inline Image PlainPicture(int64_t width, int64_t height, uint8_t value) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)};
}

class RouteTest : public testing::Test {
 protected:
  explicit RouteTest(const Pipeline& pipeline = jobs::TinyPipeline())
      : jobs_(pipeline, folder_.path(), {.queue = 2}),
        routes_(pipeline, jobs_, {}, [] { return http::ListenerStats(); }) {}

  static http::Request Get(const std::string& path) {
    return {.method = "GET", .path = path, .origin = "http://127.0.0.1:8080", .id = "r1"};
  }
  static http::Request Post(const std::string& path, const std::string& body,
                            const std::string& type = "application/json") {
    return {.method = "POST",
            .path = path,
            .content_type = type,
            .origin = "http://127.0.0.1:8080",
            .id = "r1",
            .body = body};
  }

  // The reply, after its job if it has one.
  http::Response Ask(const http::Request& request) {
    const http::Reply reply = routes_.Handle(request);
    if (const auto* response = std::get_if<http::Response>(&reply)) return *response;
    const auto& later = std::get<http::LaterReply>(reply);
    HearTheEnd(later);
    return later.reply();
  }

  // As HTTP does before it asks for the reply.
  static void HearTheEnd(const http::LaterReply& later) {
    std::binary_semaphore ended(0);
    const auto subscription = later.events([&](const http::Event& event) {
      if (event.kind == http::Event::Kind::kEnd) ended.release();
    });
    EXPECT_TRUE(subscription && ended.try_acquire_for(kLongForAnyMachine));
  }

  // What the library draws for: a red circle, not x, 32x32, one step without guidance.
  static std::vector<uint8_t> SmallPicture(uint64_t seed) {
    GenerateRequest request = jobs::QuickJob(seed).request;
    request.negative_prompt = "x";
    return jobs::TinyPipeline().Generate(request).pixels;
  }

  static Json JsonOf(const http::Response& response) { return Json::parse(response.body); }
  // The message of a refusal.
  std::string Refusal(const http::Request& request, int status = 400) {
    const http::Response response = Ask(request);
    EXPECT_EQ(response.status, status) << response.body;
    return JsonOf(response)["error"]["message"];
  }

  TempFolder folder_;
  jobs::Queue jobs_;
  Routes routes_;
};

}  // namespace qwen_image::api

// Routes under test, without sockets: the embedded model or another, a queue in a folder of its own, replies
// waited for.
#pragma once

#include <semaphore>
#include <string>
#include <variant>

#include "files/png.h"
#include "routes.h"
#include "server_testing.h"

namespace qwen_image::server {

inline Image PlainPicture(int64_t width, int64_t height, uint8_t value) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)};
}

class RouteTest : public testing::Test {
 protected:
  explicit RouteTest(const Pipeline& pipeline = TinyPipeline())
      : jobs_(pipeline, folder_.path(), {.queue = 2}),
        routes_(pipeline, jobs_, {}, [] { return HttpStats(); }) {}

  static HttpRequest Get(const std::string& path) {
    return {.method = "GET", .path = path, .origin = "http://127.0.0.1:8080", .id = "r1"};
  }
  static HttpRequest Post(const std::string& path, const std::string& body,
                          const std::string& type = "application/json") {
    return {.method = "POST",
            .path = path,
            .content_type = type,
            .origin = "http://127.0.0.1:8080",
            .id = "r1",
            .body = body};
  }

  // The reply, after its job if it has one.
  HttpResponse Ask(const HttpRequest& request) {
    const Reply reply = routes_.Handle(request);
    if (const auto* response = std::get_if<HttpResponse>(&reply)) return *response;
    const auto& later = std::get<LaterReply>(reply);
    HearTheEnd(later);
    return later.reply();
  }

  // As HTTP does before it asks for the reply.
  static void HearTheEnd(const LaterReply& later) {
    std::binary_semaphore ended(0);
    const auto subscription = later.events([&](const Event& event) {
      if (event.kind == Event::Kind::kEnd) ended.release();
    });
    EXPECT_TRUE(subscription && ended.try_acquire_for(kLongForAnyMachine));
  }

  // What the library draws for: a red circle, not x, 32x32, one step without guidance.
  static std::vector<uint8_t> SmallPicture(uint64_t seed) {
    GenerateRequest request = QuickJob(seed).request;
    request.negative_prompt = "x";
    return TinyPipeline().Generate(request).pixels;
  }

  static Json JsonOf(const HttpResponse& response) { return Json::parse(response.body); }
  // The message of a refusal.
  std::string Refusal(const HttpRequest& request, int status = 400) {
    const HttpResponse response = Ask(request);
    EXPECT_EQ(response.status, status) << response.body;
    return JsonOf(response)["error"]["message"];
  }

  TempFolder folder_;
  Jobs jobs_;
  Routes routes_;
};

}  // namespace qwen_image::server

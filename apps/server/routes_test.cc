#include "server/api/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/testing.h"
#include "server/testing.h"

namespace qwen_image::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class RoutesTest : public testing::Test {
 protected:
  const TempFolder folder_;
  TestServer server_{folder_.path(), {.jobs = {.queue = 4}}};
};

TEST_F(RoutesTest, FromPromptToPicture) {
  const http::TestReply posted = server_.Ask("POST", "/jobs", kQuickBody);
  ASSERT_EQ(posted.status, 202) << posted.body;
  const std::string id = posted.json()["id"];
  EXPECT_EQ(posted.headers.at("location"), "/jobs/" + id);
  jobs::WaitForEnd(server_->jobs(), id);
  const http::TestReply found = server_.Ask("GET", "/jobs/" + id);
  EXPECT_EQ(found.status, 200);
  EXPECT_EQ(found.json()["state"], "done") << found.body;
  const http::TestReply picture = server_.Ask("GET", "/jobs/" + id + "/images/0.png");
  EXPECT_EQ(picture.status, 200);
  EXPECT_EQ(picture.headers.at("content-type"), "image/png");
  EXPECT_FALSE(picture.headers.contains("content-disposition"));
  EXPECT_EQ(picture.body, server_->jobs().ReadPng(id, 0));
  const http::TestReply download = server_.Ask("GET", "/jobs/" + id + "/images/0.png?download=1");
  EXPECT_THAT(download.headers.at("content-disposition"), StartsWith("attachment"));
  EXPECT_EQ(server_.Ask("DELETE", "/jobs/" + id).status, 204);
  EXPECT_EQ(server_.Ask("GET", "/jobs/" + id).status, 404);
  EXPECT_EQ(server_.Ask("GET", "/jobs/" + id + "/images/0.png").status, 404);
}

TEST_F(RoutesTest, ListIsNewestFirst) {
  const std::string first = server_.Submit(kQuickBody), second = server_.Submit(kQuickBody);
  const Json jobs = server_.Ask("GET", "/jobs").json()["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["id"], second);
  EXPECT_EQ(jobs[1]["id"], first);
}

TEST_F(RoutesTest, DeleteCancelsRunningAndWaitingJobs) {
  const std::string running = server_.Submit(kLongBody), waiting = server_.Submit(kLongBody);
  jobs::WaitForSteps(server_->jobs(), running);
  const http::TestReply queued = server_.Ask("DELETE", "/jobs/" + waiting);
  EXPECT_EQ(queued.status, 202);
  EXPECT_EQ(queued.json()["state"], "cancelled");
  EXPECT_EQ(server_.Ask("DELETE", "/jobs/" + running).status, 202);
  EXPECT_EQ(jobs::WaitForEnd(server_->jobs(), running).state, jobs::State::kCancelled);
}

TEST_F(RoutesTest, FiftyJobsAtOnceAreTakenOrToldToComeAgain) {
  std::mutex mutex;
  std::vector<std::string> accepted;
  int refused = 0;
  const std::string blocker = server_.Submit(kLongBody);
  jobs::WaitForSteps(server_->jobs(), blocker);
  std::vector<std::thread> clients;
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back([&] {
      const http::TestReply reply = server_.Ask("POST", "/jobs", kQuickBody);
      const std::lock_guard lock(mutex);
      if (reply.status == 202) {
        accepted.push_back(reply.json()["id"]);
      } else {
        EXPECT_EQ(reply.status, 429) << reply.body;
        EXPECT_GE(std::stoi(reply.headers.at("retry-after")), 1);
        EXPECT_THAT(reply.body, HasSubstr("rate_limit_error"));
        ++refused;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(accepted.size(), 4u);
  EXPECT_EQ(refused, 46);
  server_.Ask("DELETE", "/jobs/" + blocker);
  for (const std::string& id : accepted)
    EXPECT_EQ(jobs::WaitForEnd(server_->jobs(), id).state, jobs::State::kDone);
}

TEST_F(RoutesTest, NoPathLeavesTheRoutes) {
  const std::string id = server_.Submit(kQuickBody);
  jobs::WaitForEnd(server_->jobs(), id);
  folder_.Write("secret.png", "secret");
  for (const std::string& path : std::vector<std::string>{
           "/../../etc/passwd", "/jobs/../secret.png", "/jobs/..%2fsecret",
           "/jobs/" + id + "/images/../secret.png", "/jobs/" + id + "/images/..%2fsecret.png",
           "/jobs/" + id + "/images/0.png/../../secret.png", "/jobs/" + id + "/images/%30.png",
           "/jobs/" + id + "/images/00000000000000000000000.png.png", "/jobs/" + id + ".json", "/jobs//" + id,
           "/" + id + "-0.png", "/jobs/" + id + "/images/-1.png",
           "/jobs/" + id + "/images/18446744073709551616.png", "/lock", "/jobs/lock", "//etc/passwd"}) {
    const http::TestReply reply = server_.Ask("GET", path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_THAT(reply.body, Not(HasSubstr("secret\""))) << path;
  }
}

TEST_F(RoutesTest, BodiesThatAreNoJobsAreRefusedWithAReason) {
  for (const std::string& body : std::vector<std::string>{
           "", "x", "[]", "{}", R"({"prompt": 1})", R"({"prompt": "x", "steps": -1})",
           R"({"prompt": "x", "steps": 0})", R"({"prompt": "x", "steps": 1000000000})",
           R"({"prompt": "x", "n": 1000000000})", R"({"prompt": "x", "width": 7})",
           R"({"prompt": "x", "width": 1000000, "height": 1000000})", R"({"prompt": "x", "cfg": 1e999})",
           "{\"prompt\": \"\xff\"}", R"({"prompt": "a\u0000b"})"}) {
    const http::TestReply reply = server_.Ask("POST", "/jobs", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_FALSE(reply.json()["error"]["message"].get<std::string>().empty());
  }
  EXPECT_EQ(server_.Ask("POST", "/jobs", R"({"prompt": ")" + std::string(10 << 20, 'x') + "\"}").status, 400);
  EXPECT_EQ(server_.Ask("GET", "/health").status, 200);
}

TEST_F(RoutesTest, OtherMethodsAreNamed) {
  const http::TestReply reply = server_.Ask("PUT", "/jobs");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.headers.at("allow"), "OPTIONS, GET, HEAD, POST");
  const http::TestReply options = server_.Ask("OPTIONS", "/jobs");
  EXPECT_EQ(options.status, 204);
  EXPECT_TRUE(options.headers.contains("allow"));
  EXPECT_FALSE(options.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(server_.Ask("POST", "/health").status, 405);
  EXPECT_EQ(server_.Ask("BREW", "/").status, 405);
}

TEST_F(RoutesTest, HeadHasTheLengthAndNoBody) {
  http::Client client(server_.port());
  client.Send(http::RequestText("HEAD", "/health", server_.port()));
  const http::TestReply head = client.Read(false);
  client.Send(http::RequestText("GET", "/health", server_.port()));
  const http::TestReply get = client.Read();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(get.body.size()));
}

TEST_F(RoutesTest, InfoSaysWhatThePageNeeds) {
  const Json info = server_.Ask("GET", "/info").json();
  EXPECT_EQ(info["model"], server_.Ask("GET", "/v1/models").json()["data"][0]["id"]);  // one name everywhere
  EXPECT_EQ(info["loaded_from"], "tiny");
  EXPECT_EQ(info["edits"], true);
  EXPECT_EQ(info["channels"], 3);
  EXPECT_EQ(info["side_multiple"], 16);
  EXPECT_EQ(info["defaults"]["width"], 128);
  EXPECT_EQ(info["defaults"]["steps"], 20);
  EXPECT_EQ(info["limits"]["queue"], 4);
  EXPECT_GT(info["limits"]["body_bytes"], 0);
  EXPECT_EQ(info["threads"], 1);
}

TEST_F(RoutesTest, MetricsCount) {
  jobs::WaitForEnd(server_->jobs(), server_.Submit(kQuickBody));
  const http::TestReply reply = server_.Ask("GET", "/metrics");
  EXPECT_THAT(reply.body, HasSubstr("qwen_image_info{model=\"qwen-image\",device=\"cpu\",version=\""));
  EXPECT_THAT(reply.headers.at("content-type"), StartsWith("text/plain"));
  EXPECT_THAT(
      reply.body,
      AllOf(HasSubstr("qwen_image_queue_length 0\n"), HasSubstr("qwen_image_jobs{state=\"done\"} 1\n"),
            HasSubstr("qwen_image_pictures_total 1\n"),
            HasSubstr("qwen_image_requests_total{status=\"202\"} 1\n"),
            HasSubstr("# TYPE qwen_image_seconds_per_step gauge\n"),
            HasSubstr("qwen_image_resident_memory_bytes "), Not(HasSubstr("memory_bytes 0\n"))));
}

TEST_F(RoutesTest, RepliesAreSafeInABrowser) {
  for (const char* path : {"/", "/jobs", "/nothing"}) {
    const http::TestReply reply = server_.Ask("GET", path);
    EXPECT_EQ(reply.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(reply.headers.at("referrer-policy"), "no-referrer");
    EXPECT_THAT(reply.headers.at("content-security-policy"),
                AllOf(HasSubstr("default-src 'none'"), HasSubstr("frame-ancestors 'none'"),
                      Not(HasSubstr("unsafe")), Not(HasSubstr("http"))));
    EXPECT_FALSE(reply.headers.contains("access-control-allow-origin"));
  }
}

TEST_F(RoutesTest, TheLogSaysWhoAskedAndNotWhat) {
  const std::string id =
      server_.Submit(R"({"prompt": "private thoughts", "width": 32, "height": 32, "steps": 1})");
  jobs::WaitForEnd(server_->jobs(), id);
  const http::TestReply reply =
      server_.Ask("GET", "/x\"\x1b[31m", "", "Authorization: Bearer my-secret-key\r\n");
  server_->Drain();
  server_.Join();
  std::string all;
  std::vector<Json> requests;
  for (const std::string& line : server_.log()) {
    const Json json = Json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_TRUE(json.contains("time"));
    if (json["event"] == "request") requests.push_back(json);
    all += line + "\n";
  }
  EXPECT_THAT(all, AllOf(Not(HasSubstr("private thoughts")), Not(HasSubstr("my-secret-key")),
                         Not(HasSubstr("\x1b"))));
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]["method"], "POST");
  EXPECT_EQ(requests[0]["path"], "/jobs");
  EXPECT_EQ(requests[0]["status"], 202);
  EXPECT_EQ(requests[1]["request_id"], reply.headers.at("x-request-id"));
  EXPECT_THAT(all, AllOf(HasSubstr("\"state\":\"running\""), HasSubstr("\"state\":\"done\"")));
}

}  // namespace
}  // namespace qwen_image::server

// Jobs seen through HTTP: events, replies that wait, clients that leave, the end of the server.
#include "server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>

#include "files/base64.h"
#include "files/png.h"
#include "server/api/job_reply.h"
#include "server/api/replies.h"
#include "server/jobs/testing.h"
#include "server/testing.h"

namespace qwen_image::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

class ServerTest : public testing::Test {
 protected:
  TestServer& server() {
    if (!server_) server_.emplace(folder_.path(), settings_);
    return *server_;
  }
  std::unique_ptr<http::Client> Events(const std::string& id) {
    auto client = std::make_unique<http::Client>(server().port());
    client->Send(http::RequestText("GET", "/jobs/" + id + "/events", server().port()));
    return client;
  }

  const TempFolder folder_;
  ServerSettings settings_;
  std::optional<TestServer> server_;
};

// "event: progress\ndata: {…}\n\n" → name and data.
std::pair<std::string, Json> ReadEvent(http::Client& client) {
  std::string text = client.ReadUntil("\n\n");
  while (text.starts_with(":")) text = client.ReadUntil("\n\n");
  const size_t line = text.find('\n');
  if (!text.starts_with("event: ") || line == text.npos) return {};
  const size_t data = text.find("data: ", line);
  return {text.substr(7, line - 7), Json::parse(text.substr(data + 6), nullptr, false)};
}

TEST_F(ServerTest, EventsTellProgressPreviewsAndTheEnd) {
  const std::string blocker = server().Submit(kLongBody), id = server().Submit(kLongBody);
  const auto client = Events(id);
  const http::TestReply header = client->Read(false);
  EXPECT_EQ(header.status, 200);
  EXPECT_EQ(header.headers.at("content-type"), "text/event-stream");
  auto [name, data] = ReadEvent(*client);
  EXPECT_EQ(name, "progress");  // at once
  EXPECT_EQ(data["state"], "queued");
  server().Ask("DELETE", "/jobs/" + blocker);
  bool preview = false, step = false;
  while (!preview || !step) {
    std::tie(name, data) = ReadEvent(*client);
    ASSERT_TRUE(name == "progress" || name == "preview") << name;
    if (name == "progress") step |= data["progress"]["step"] > 0;
    if (name != "preview") continue;
    preview = true;
    const std::string url = data["image"];
    ASSERT_THAT(url, StartsWith("data:image/png;base64,"));
    EXPECT_EQ(DecodePng(DecodeBase64(url.substr(22)).value_or(""), "preview", {}).width, 128);
  }
  server().Ask("DELETE", "/jobs/" + id);
  while (name == "progress" || name == "preview") std::tie(name, data) = ReadEvent(*client);
  EXPECT_EQ(name, "end");
  EXPECT_EQ(data["state"], "cancelled");
  EXPECT_EQ(data["id"], id);
  EXPECT_TRUE(client->ReadEnd());
}

TEST_F(ServerTest, EventsOfAnEndedJobAreItsEnd) {
  const std::string id = server().Submit(kQuickBody);
  jobs::WaitForEnd(server()->jobs(), id);
  const auto client = Events(id);
  client->Read(false);
  EXPECT_EQ(ReadEvent(*client).first, "end");
  EXPECT_TRUE(client->ReadEnd());
  EXPECT_EQ(server().Ask("GET", "/jobs/nobody/events").status, 404);
}

TEST_F(ServerTest, AStreamOfOpenAisTellsPartialImagesAndThePicture) {
  const std::string blocker = server().Submit(kLongBody);
  http::Client client(server().port());
  client.Send(http::RequestText(
      "POST", "/v1/images/generations", server().port(),
      R"({"prompt": "x", "size": "64x32", "steps": 9, "stream": true, "partial_images": 2, "output_format": "webp"})"));
  EXPECT_EQ(client.Read(false).headers.at("content-type"), "text/event-stream");
  server().Ask("DELETE", "/jobs/" + blocker);
  for (int i = 0; i < 2; ++i) {
    const auto [name, data] = ReadEvent(client);
    EXPECT_EQ(name, "image_generation.partial_image");
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["partial_image_index"], i);
    EXPECT_THAT(*DecodeBase64(data["b64_json"].get<std::string>()), StartsWith("RIFF"));
  }
  const auto [name, data] = ReadEvent(client);
  EXPECT_EQ(name, "image_generation.completed");
  const Image picture = DecodeImage(*DecodeBase64(data["b64_json"].get<std::string>()), "picture").image;
  EXPECT_EQ(picture.width, 64);
  EXPECT_EQ(data["output_format"], "webp");
  EXPECT_EQ(data["size"], "64x32");
  EXPECT_GT(data["created_at"], 1'600'000'000);
  EXPECT_EQ(data["usage"]["total_tokens"], 0);
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(ServerTest, AJobNobodyStreamsAnyMoreIsCancelled) {
  const std::string body =
      R"({"prompt": "x", "size": "128x128", "steps": 200, "stream": true, "partial_images": 3})";
  const auto streamed = [&] {
    auto client = std::make_unique<http::Client>(server().port());
    client->Send(http::RequestText("POST", "/v1/images/generations", server().port(), body));
    client->Read(false);
    return client;
  };
  streamed()->Reset();
  jobs::Queue& queue = server()->jobs();
  EXPECT_EQ(jobs::WaitForEnd(queue, queue.List().front().id).state, jobs::State::kCancelled);
  // One that is stopped by another is told.
  const auto client = streamed();
  server().Ask("DELETE", "/jobs/" + queue.List().front().id);
  auto [name, data] = ReadEvent(*client);
  while (name == "image_generation.partial_image") std::tie(name, data) = ReadEvent(*client);
  EXPECT_EQ(name, "error");
  EXPECT_EQ(data["error"]["code"], "cancelled");
}

TEST_F(ServerTest, HeartbeatsComeWhileNothingHappens) {
  settings_.http.heartbeat = milliseconds(20);
  const std::string running = server().Submit(kLongBody), waiting = server().Submit(kLongBody);
  const auto client = Events(waiting);
  client->Read(false);
  std::string text = client->ReadUntil("\n\n");
  EXPECT_THAT(text, StartsWith("event: progress\n"));
  while (text.starts_with("event")) text = client->ReadUntil("\n\n");
  EXPECT_EQ(text, ":\n\n");
}

TEST_F(ServerTest, AClientThatLeavesItsEventsDisturbsNobody) {
  const std::string id = server().Submit(kLongBody);
  jobs::WaitForSteps(server()->jobs(), id);
  for (int i = 0; i < 3; ++i) {
    const auto client = Events(id);
    client->Read(false);
    ReadEvent(*client);
    if (i == 0) client->Reset();
  }
  EXPECT_EQ(server()->jobs().Find(id)->state, jobs::State::kRunning);
  // Their connections end without a word from the job: only the one that asks is left.
  while (server().Ask("GET", "/metrics").body.find("qwen_image_connections 1\n") == std::string::npos)
    std::this_thread::yield();
}

TEST_F(ServerTest, AReaderWhoNeverReadsIsLeftBehind) {
  settings_.http.write_deadline = milliseconds(100);
  settings_.http.send_buffer_bytes = 4096;
  const std::string id = server().Submit(kLongBody);
  http::Client client(server().port());
  client.SmallWindow();
  client.Send(http::RequestText("GET", "/jobs/" + id + "/events", server().port()));
  // Previews fill the buffers of both sides; then the deadline passes.
  const auto left = [&] {
    for (const std::string& line : server().log()) {
      if (line.find("\"status\":499") != line.npos) return true;
    }
    return false;
  };
  while (!left()) std::this_thread::yield();
  EXPECT_EQ(server()->jobs().Find(id)->state, jobs::State::kRunning);
}

// A server whose every path is a job that the reply waits for.
class WaitTest : public testing::Test {
 protected:
  WaitTest() : thread_([this] { http_.Run(); }) {}
  ~WaitTest() override {
    jobs_.Stop();
    http_.Stop();
    thread_.join();
  }
  std::string Get(const std::string& id) { return http::RequestText("GET", "/" + id, http_.port()); }

  const TempFolder folder_;
  std::counting_semaphore<> handled_{0};
  jobs::Queue jobs_{jobs::TinyPipeline(), folder_.path(), {}};
  http::Listener http_{{.port = 0},
                       {.handle = [this](const http::Request& request) -> http::Reply {
                          handled_.release();
                          return api::ReplyAfterJob(
                              request, jobs_, request.path.substr(1), [](const jobs::Job& job) {
                                return http::Response{.content_type = "text/plain", .body = Name(job.state)};
                              });
                        },
                        .problem = api::Problem,
                        .is_public = [](const std::string&) { return true; }}};
  std::thread thread_;
};

TEST_F(WaitTest, TheReplyComesWithTheEnd) {
  http::Client client(http_.port());
  // The second is sent while the first is waited for.
  client.Send(Get(jobs_.Submit(jobs::QuickJob())) + Get(jobs_.Submit(jobs::QuickJob())));
  EXPECT_EQ(client.Read().body, "done");
  EXPECT_EQ(client.Read().body, "done");
  client.Send(Get(jobs_.Submit(jobs::QuickJob())));
  EXPECT_EQ(client.Read().body, "done");
  client.Send(Get("nobody"));
  EXPECT_EQ(client.Read().status, 404);
}

TEST_F(WaitTest, AClientThatLeavesTakesItsJobWithIt) {
  for (const bool rude : {false, true}) {
    const std::string id = jobs_.Submit(jobs::LongJob());
    http::Client client(http_.port());
    client.Send(Get(id));
    handled_.acquire();  // the server has read it
    jobs::WaitForSteps(jobs_, id);
    if (rude) client.Reset();
    client.Close();
    EXPECT_EQ(jobs::WaitForEnd(jobs_, id).state, jobs::State::kCancelled);
  }
}

// As many requests as there are workers, and more, that are not answered before the end of the test.
TEST(BusyWorkers, DoNotHoldUpTheQuickRoutes) {
  std::counting_semaphore<> begun(0), may_end(0);
  constexpr int kMany = 8;
  http::Listener http({.port = 0}, {.handle = [&](const http::Request& request) -> http::Reply {
                                      if (request.path == "/slow") {
                                        begun.release();
                                        may_end.acquire();
                                      }
                                      return http::Response{.content_type = "text/plain",
                                                            .body = request.path};
                                    },
                                    .problem = api::Problem,
                                    .is_public = [](const std::string&) { return true; },
                                    .is_quick = api::Routes::IsQuick});
  std::thread thread([&] { http.Run(); });
  std::vector<std::unique_ptr<http::Client>> slow;
  for (int i = 0; i < kMany; ++i) {
    slow.push_back(std::make_unique<http::Client>(http.port()));
    slow.back()->Send(http::RequestText("GET", "/slow", http.port()));
  }
  for (int i = 0; i < 4; ++i) begun.acquire();  // all workers have one
  for (const char* path : {"/health", "/metrics"}) {
    http::Client client(http.port());
    client.Send(http::RequestText("GET", path, http.port()));
    EXPECT_EQ(client.Read().body, path);
  }
  may_end.release(kMany);
  for (const auto& client : slow) EXPECT_EQ(client->Read().status, 200);
  http.Stop();
  thread.join();
}

TEST_F(ServerTest, DrainFinishesThePictureAndAnswers) {
  const std::string blocker = server().Submit(kLongBody), waiting = server().Submit(kQuickBody);
  jobs::WaitForSteps(server()->jobs(), blocker);
  const auto events = Events(waiting);
  events->Read(false);
  EXPECT_EQ(ReadEvent(*events).first, "progress");
  http::Client idle(server().port());
  idle.Send(http::RequestText("GET", "/health", server().port()));
  EXPECT_EQ(idle.Read().status, 200);
  server()->Drain();
  server()->Drain();  // at once
  auto [name, data] = ReadEvent(*events);
  while (name == "progress") std::tie(name, data) = ReadEvent(*events);
  EXPECT_EQ(name, "end");
  EXPECT_EQ(data["state"], "interrupted");
  EXPECT_TRUE(idle.ReadEnd());
  server().Join();
  EXPECT_EQ(server()->jobs().Find(blocker)->state, jobs::State::kInterrupted);
  http::Client late(server().port());
  EXPECT_FALSE(late.Send("GET"));
}

TEST_F(ServerTest, AClientThatNeverEndsDoesNotHoldTheServer) {
  settings_.http.shutdown_grace = milliseconds(50);
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Content-Length: 1000\r\n"));
  while (server().Ask("GET", "/metrics").body.find("qwen_image_connections 2\n") == std::string::npos)
    std::this_thread::yield();
  server()->Drain();
  server().Join();
}

TEST_F(ServerTest, ARestartedServerHasTheJobs) {
  const std::string done = server().Submit(kQuickBody);
  jobs::WaitForEnd(server()->jobs(), done);
  const std::string running = server().Submit(kLongBody), waiting = server().Submit(kQuickBody);
  jobs::WaitForSteps(server()->jobs(), running);
  server_.reset();
  EXPECT_EQ(server().Ask("GET", "/jobs/" + done).json()["state"], "done");
  EXPECT_EQ(server().Ask("GET", "/jobs/" + done + "/images/0.png").status, 200);
  for (const std::string& id : {running, waiting}) {
    const Json job = server().Ask("GET", "/jobs/" + id).json();
    EXPECT_EQ(job["state"], "interrupted");
    EXPECT_THAT(job.dump(), HasSubstr("the server was stopped"));
  }
}

}  // namespace
}  // namespace qwen_image::server

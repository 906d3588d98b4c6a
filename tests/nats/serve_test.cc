// qwen-image serve that hands its jobs to workers.
#include <thread>

#include "nats_fixture.h"
#include "server/http/test_client.h"

namespace qwen_image {
namespace {

using http::Client;
using http::RequestText;
using http::TestReply;
using testing::AllOf;
using testing::HasSubstr;

class ServeNats : public Nats {
 protected:
  std::unique_ptr<RunningProgram> Serve(const NatsServer& server, const Arguments& more = {}) {
    RunOptions options;
    options.folder = folder_.path();
    auto program = std::make_unique<RunningProgram>(
        Arguments{"serve", "--port", "0", "--jobs-dir", "jobs"} + At(server, more), options);
    const std::string out = program->WaitForOutput("\n");
    const size_t colon = out.find("http://127.0.0.1:");
    EXPECT_NE(colon, out.npos) << out;
    port_ = colon == out.npos ? 0 : static_cast<uint16_t>(std::stoi(out.substr(colon + 17)));
    return program;
  }
  TestReply Ask(const std::string& method, const std::string& path, const std::string& body = "") const {
    Client client(port_);
    client.Send(RequestText(method, path, port_, body, ""));
    return client.Read();
  }
  std::string Post(const std::string& body) const {
    const TestReply reply = Ask("POST", "/jobs", body);
    EXPECT_EQ(reply.status, 202) << reply.body;
    return reply.status == 202 ? reply.json()["id"].get<std::string>() : "";
  }
  Json JobOf(const std::string& id) const { return Ask("GET", "/jobs/" + id).json(); }
  // The events of the job until its last.
  std::string EventsOf(const std::string& id) const {
    Client client(port_);
    client.Send(RequestText("GET", "/jobs/" + id + "/events", port_, "", ""));
    const std::string events = client.ReadUntil("event: end");
    return events + client.ReadUntil("\n\n");
  }
  Image PictureOf(const std::string& id) const {
    return ReadPng(folder_.Write("served.png", Ask("GET", "/jobs/" + id + "/images/0.png").body));
  }

  uint16_t port_ = 0;
};

TEST_F(ServeNats, WorkersDrawAndTheServerShows) {
  const NatsServer server(folder_.path());
  for (const Arguments& where : {Arguments{}, Arguments{"--results", "pictures"}}) {
    const auto worker = Work(server, where);
    const auto program = Serve(server, where);
    const std::string id =
        Post(R"({"prompt": "a star", "width": 256, "height": 256, "steps": 20, "cfg": 1, "seed": 9})");
    const std::string events = EventsOf(id);
    EXPECT_THAT(events,
                AllOf(HasSubstr("event: progress"), HasSubstr("event: preview"), HasSubstr("event: end"),
                      HasSubstr("\"stage\":\"denoise\""), HasSubstr("data:image/png;base64,")));
    const Json job = JobOf(id);
    ASSERT_EQ(job["state"], "done") << job;
    EXPECT_EQ(job["progress"]["fraction"], 1);
    EXPECT_EQ(job["images"][0]["seed"], 9);
    EXPECT_EQ(PictureOf(id).pixels,
              Draw({"a star", "--size", "256x256", "--steps", "20", "--cfg", "1", "--seed", "9"}).pixels);
    EXPECT_EQ(Json::parse(ReadPngText(Path("served.png"))["qwen-image"]).at("prompt"), "a star");
    while (Ask("GET", "/health").json()["workers"] != Json({{"waiting", 1}, {"drawing", 0}}))
      std::this_thread::yield();
    EXPECT_THAT(Ask("GET", "/metrics").body, HasSubstr("qwen_image_workers{state=\"waiting\"} 1"));
    EXPECT_EQ(Ask("POST", "/v1/images/generations", R"({"prompt": "x", "size": "32x32", "steps": 1})").status,
              200);
    program->Signal(SIGTERM);
    EXPECT_EQ(program->Finish().exit_code, 0);
    StopInGoodOrder(*worker);
  }
}

TEST_F(ServeNats, AJobThatNobodyCanDrawSaysSo) {
  const NatsServer server(folder_.path());
  const auto program = Serve(server, {"--queue", "2"});
  EXPECT_EQ(Ask("GET", "/health").json()["workers"], Json({{"waiting", 0}, {"drawing", 0}}));
  const std::string first = Post(kLongJob), second = Post(kQuickJob);
  EXPECT_EQ(Ask("POST", "/jobs", kQuickJob).status, 429);
  NatsClient client(server);
  while (!client.board.InQueue("qwen-image", first) || !client.board.InQueue("qwen-image", second))
    std::this_thread::yield();
  while (JobOf(first)["progress"]["stage"] == "") std::this_thread::yield();
  EXPECT_THAT(JobOf(first)["progress"]["stage"].get<std::string>(),
              HasSubstr("waiting for a worker with this model"));
  EXPECT_EQ(JobOf(second)["state"], "queued");
  EXPECT_EQ(Ask("DELETE", "/jobs/" + second).status, 202);
  EXPECT_THAT(EventsOf(second), HasSubstr("\"state\":\"cancelled\""));
  EXPECT_FALSE(client.board.InQueue("qwen-image", second));
  EXPECT_TRUE(client.board.InQueue("qwen-image", first));
}

TEST_F(ServeNats, CancellingStopsTheWorker) {
  const NatsServer server(folder_.path());
  const auto program = Serve(server);
  const auto worker = Work(server);
  const std::string id = Post(kLongJob);
  ASSERT_NE(worker->WaitForOutput(id + " begins"), "");
  EXPECT_EQ(Ask("DELETE", "/jobs/" + id).status, 202);
  EXPECT_NE(worker->WaitForOutput(id + " was cancelled"), "");
  EXPECT_THAT(EventsOf(id), HasSubstr("\"state\":\"cancelled\""));
  const std::string next = Post(kQuickJob);
  EXPECT_THAT(EventsOf(next), HasSubstr("\"state\":\"done\""));
}

TEST_F(ServeNats, TheServerMayEndAndShowItsJobsLater) {
  const NatsServer server(folder_.path());
  auto program = Serve(server);
  const std::string id = Post(kQuickJob);
  {
    NatsClient client(server);
    while (!client.board.InQueue("qwen-image", id)) std::this_thread::yield();
  }
  program->Signal(SIGINT);
  EXPECT_EQ(program->Finish().exit_code, 0);
  const auto worker = Work(server);
  ASSERT_NE(worker->WaitForOutput(id + " done"), "");
  program = Serve(server);
  EXPECT_THAT(EventsOf(id), HasSubstr("\"state\":\"done\""));
  EXPECT_EQ(PictureOf(id).pixels, Alone().pixels);
}

TEST_F(ServeNats, AFailureOfAWorkerIsTheJobs) {
  const NatsServer server(folder_.path());
  const auto program = Serve(server);
  const std::string id = Post(kLongJob);
  for (int i = 0; i < 3; ++i) {
    const auto worker = Work(server);
    ASSERT_NE(worker->WaitForOutput(id + " begins"), "");
    Kill(*worker);
  }
  const auto last = Work(server);
  EXPECT_THAT(EventsOf(id), AllOf(HasSubstr("\"state\":\"failed\""), HasSubstr("set aside after 3 tries")));
}

TEST_F(ServeNats, JobsWaitWhileTheServerOfTheQueueIsGone) {
  NatsServer server(folder_.path());
  const auto worker = Work(server);
  const auto program = Serve(server);
  server.Kill();
  ASSERT_NE(worker->WaitForOutput("the NATS server is gone"), "");
  const std::string id = Post(kQuickJob);
  ASSERT_TRUE(program->WaitForError("\"event\":\"nats\""));
  server.Start();
  EXPECT_THAT(EventsOf(id), HasSubstr("\"state\":\"done\""));
  EXPECT_EQ(PictureOf(id).pixels, Alone().pixels);
}

}  // namespace
}  // namespace qwen_image

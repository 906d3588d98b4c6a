// qwen-image serve as a user starts and stops it.
#include <csignal>

#include "cli_fixture.h"
#include "server/http/test_client.h"

namespace qwen_image {
namespace {

using http::Client;
using http::RequestText;
using http::TestReply;
using testing::HasSubstr;

constexpr const char* kQuickBody = R"({"prompt": "a star", "width": 32, "height": 32, "steps": 8, "cfg": 1})";
constexpr const char* kLongBody =
    R"({"prompt": "a star", "width": 256, "height": 256, "steps": 200, "n": 10})";

class Serve : public Cli {
 protected:
  std::unique_ptr<RunningProgram> Start(const Arguments& more = {}, RunOptions options = {}) {
    options.folder = folder_.path();
    auto program = std::make_unique<RunningProgram>(
        Arguments{"serve", "--port", "0", "--jobs-dir", "jobs", "--threads", "1"} + more, options);
    const std::string out = program->WaitForOutput("\n");
    const size_t colon = out.find("http://127.0.0.1:");
    EXPECT_NE(colon, out.npos) << out;
    port_ = colon == out.npos ? 0 : static_cast<uint16_t>(std::stoi(out.substr(colon + 17)));
    return program;
  }
  TestReply Ask(const std::string& method, const std::string& path, const std::string& body = "",
                const std::string& headers = "") const {
    Client client(port_);
    client.Send(RequestText(method, path, port_, body, headers));
    return client.Read();
  }
  std::string Submit(const std::string& body) const {
    const TestReply reply = Ask("POST", "/jobs", body);
    EXPECT_EQ(reply.status, 202) << reply.body;
    return reply.status == 202 ? reply.json()["id"].get<std::string>() : "";
  }
  std::string StateOf(const std::string& id) const {
    const Json job = Ask("GET", "/jobs/" + id).json();
    return job.is_object() && job.contains("state") ? job["state"].get<std::string>() : job.dump();
  }

  uint16_t port_ = 0;
};

TEST_F(Serve, SaysWhereAndEndsInGoodOrder) {
  const auto program = Start();
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  program->Signal(SIGINT);
  const RunResult result = program->Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tiny is ready: open http://127.0.0.1:"));
}

TEST_F(Serve, TheLogMayBeAFile) {
  folder_.Write("serve.log", "what was there\n");
  const auto program = Start({"--log-file", "serve.log"});
  EXPECT_EQ(Ask("GET", "/info").status, 200);
  program->Signal(SIGINT);
  const RunResult result = program->Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(ReadBytes(Path("serve.log")),
              testing::AllOf(testing::StartsWith("what was there\n{"), HasSubstr("\"path\":\"/info\"")));
  ExpectRefused({"serve", "--log-file", "absent/serve.log"}, kCannotWrite,
                "cannot write the log absent/serve.log");
}

TEST_F(Serve, PicturesSayWhatMadeThemUnlessToldNotTo) {
  for (const Arguments& more : {Arguments{}, Arguments{"--no-source-mark"}}) {
    const auto program = Start(more);
    const TestReply reply =
        Ask("POST", "/v1/images/generations", R"({"prompt": "x", "size": "32x32", "steps": 1})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const std::string url = reply.json()["data"][0]["url"];
    const std::string picture = Ask("GET", url.substr(url.find("/jobs/"))).body;
    EXPECT_EQ(picture.find("trainedAlgorithmicMedia") != picture.npos, more.empty());
    program->Signal(SIGINT);
    EXPECT_EQ(program->Finish().exit_code, 0);
  }
}

TEST_F(Serve, InterruptingItFinishesThePicture) {
  auto program = Start();
  const char* body = R"({"prompt": "a star", "width": 128, "height": 128, "steps": 80, "cfg": 1})";
  const std::string id = Submit(body);
  // So many that a signal which comes late on a busy machine still finds some of them waiting.
  std::string waiting;
  for (int i = 0; i < 12; ++i) waiting = Submit(body);
  ASSERT_TRUE(program->WaitForError("\"state\":\"running\""));
  program->Signal(SIGINT);
  const RunResult result = program->Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  program = Start();
  EXPECT_EQ(StateOf(id), "done");
  EXPECT_EQ(Ask("GET", "/jobs/" + id + "/images/0.png").status, 200);
  EXPECT_EQ(StateOf(waiting), "interrupted");
}

TEST_F(Serve, SigtermFinishesTheQueue) {
  auto program = Start();
  const std::string id = Submit(R"({"prompt": "a star", "steps": 80, "cfg": 1})");
  const std::string waiting = Submit(kQuickBody), last = Submit(kQuickBody);
  ASSERT_TRUE(program->WaitForError("\"state\":\"running\""));
  program->Signal(SIGTERM);
  const RunResult result = program->Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  program = Start();
  for (const std::string& job : {id, waiting, last}) EXPECT_EQ(StateOf(job), "done");
}

TEST_F(Serve, TwoSignalsStopAtOnce) {
  auto program = Start();
  const std::string id = Submit(kLongBody), waiting = Submit(kLongBody);
  ASSERT_TRUE(program->WaitForError("\"state\":\"running\""));
  program->Signal(SIGTERM);
  // The second is sent when the first has been heard; equal signals that wait become one.
  while (Client(port_).Send("GET")) {
  }
  program->Signal(SIGTERM);
  const RunResult result = program->Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  program = Start();
  EXPECT_EQ(StateOf(id), "interrupted");
  EXPECT_EQ(StateOf(waiting), "interrupted");
}

TEST_F(Serve, AfterAKillJobsAreSaidToBeInterrupted) {
  auto program = Start();
  const std::string id = Submit(kLongBody), waiting = Submit(kLongBody);
  ASSERT_TRUE(program->WaitForError("\"state\":\"running\""));
  program->Signal(SIGKILL);
  program->Finish();
  program = Start();
  EXPECT_EQ(StateOf(id), "interrupted");
  EXPECT_EQ(StateOf(waiting), "interrupted");
}

TEST_F(Serve, AFullDiskFailsTheJobAndNotTheServer) {
  const auto program = Start({}, {.file_size = 1});
  EXPECT_EQ(Ask("POST", "/jobs", kQuickBody).status, 507);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  program->Signal(SIGTERM);
  EXPECT_EQ(program->Finish().exit_code, 0);
}

TEST_F(Serve, ADiskThatFillsUpWhileDrawingIsSaid) {
  const auto program = Start({}, {.file_size = 1500});  // room for the record, not for the picture
  const std::string id = Submit(R"({"prompt": "a star", "width": 64, "height": 64, "steps": 1, "cfg": 1})");
  ASSERT_TRUE(program->WaitForError("\"state\":\"failed\""));
  EXPECT_EQ(StateOf(id), "failed");
  EXPECT_THAT(Ask("GET", "/jobs/" + id).body, HasSubstr("cannot write"));
}

// A limit on addresses, and bodies of all sizes up to it: wherever the allocation fails, the server goes on.
TEST_F(Serve, SaysThatThereIsNoMemoryAndLives) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  const auto program = Start({}, {.address_space = 260'000'000});
  std::map<int, int> statuses;
  for (int megabytes = 1; megabytes < 60; megabytes += 2) {
    const std::string text(static_cast<size_t>(megabytes) << 20, 'x');
    ++statuses[Ask("POST", "/jobs", "{\"prompt\": \"" + text + "\"}").status];
    std::string keys;
    for (int i = 0; i < 4000; ++i) keys += fmt::format("\"{}{}\":1,", text.substr(0, text.size() / 4000), i);
    ++statuses[Ask("POST", "/jobs", '{' + keys + "\"prompt\": \"x\"}").status];
    ASSERT_EQ(Ask("GET", "/health").status, 200) << megabytes;
  }
  EXPECT_GT(statuses[400], 0);
  EXPECT_GT(statuses[503], 0);
  EXPECT_EQ(statuses[400] + statuses[503], 60) << testing::PrintToString(statuses);
  program->Signal(SIGTERM);
  EXPECT_EQ(program->Finish().exit_code, 0);
}

TEST_F(Serve, AStalledReaderOfTheLogStopsNeitherItNorSigterm) {
  const auto program = Start();  // what it logs is read only at the end
  const std::string path = "/" + std::string(150, 'x');
  for (int i = 0; i < 600; ++i) ASSERT_EQ(Ask("GET", path).status, 404) << i;
  program->Signal(SIGTERM);
  while (Client(port_).Send("GET")) {
  }
  EXPECT_EQ(program->Finish().exit_code, 0);
}

TEST_F(Serve, TheKeyMayComeFromTheEnvironment) {
  const auto program = Start({}, {.environment = {{"QWEN_IMAGE_API_KEY", "correct-horse"}}});
  EXPECT_EQ(Ask("GET", "/jobs").status, 401);
  EXPECT_EQ(Ask("GET", "/jobs", "", "Authorization: Bearer correct-horse\r\n").status, 200);
  program->Signal(SIGTERM);
  EXPECT_EQ(program->Finish().err.find("correct-horse"), std::string::npos);
}

TEST_F(Serve, RefusesWhatCannotBeServed) {
  ExpectRefused({"serve", "--host", "0.0.0.0", "--jobs-dir", "/dev/null/x"}, kCannotWrite, "/dev/null/x");
  for (const char* port : {"70000", "-1", "http"})
    ExpectRefused({"serve", "--port", port}, kUsage,
                  "ports go from 1 to 65535, and 0 takes any that is free");
  ExpectRefused({"serve", "--queue", "0"}, kUsage, "--queue");
  for (const char* host : {"a b", "*", "https://draw.example.com", "draw.example.com:80"})
    ExpectRefused({"serve", "--allow-host", host}, kUsage, "is not the name of a host");
  const RunResult open = Run({"serve", "--host", "0.0.0.0", "--port", "0", "--jobs-dir", "jobs"});
  EXPECT_EQ(open.exit_code, kUsage);
  EXPECT_THAT(open.err, HasSubstr("QWEN_IMAGE_API_KEY"));
}

TEST_F(Serve, TwoServersDoNotShareJobs) {
  const auto program = Start();
  const RunResult second = Run({"serve", "--port", "0", "--jobs-dir", "jobs"});
  EXPECT_EQ(second.exit_code, kCannotWrite);
  EXPECT_THAT(second.err, HasSubstr("another server"));
  const RunResult taken = Run({"serve", "--port", std::to_string(port_), "--jobs-dir", "others"});
  EXPECT_EQ(taken.exit_code, kUsage);
  EXPECT_THAT(taken.err, HasSubstr("--port"));
}

}  // namespace
}  // namespace qwen_image

// A real NATS server for a test, and what the tests of jobs on it share.
#pragma once

#include <csignal>
#include <memory>

#include "../cli_fixture.h"
#include "queue/board.h"
#include "queue/connect.h"

namespace qwen_image {

// On a free port of this machine; what it keeps is in a folder of the test's, so that it may be started
// again.
class NatsServer {
 public:
  explicit NatsServer(const std::filesystem::path& folder, Arguments more = {},
                      const std::string& scheme = "nats")
      : folder_(folder), more_(std::move(more)), scheme_(scheme) {
    Start();
  }

  void Start() {
    RunOptions options;
    options.folder = folder_;
    options.program =
        std::filesystem::exists("/usr/sbin/nats-server") ? "/usr/sbin/nats-server" : "/usr/bin/nats-server";
    // -1: a free port. Once it is known, it stays.
    process_ = std::make_unique<RunningProgram>(
        Arguments{"-js", "-sd", "kept", "-a", "127.0.0.1", "-p", port_.empty() ? "-1" : port_, "-P", "pid"} +
            more_,
        options);
    EXPECT_TRUE(process_->WaitForError("Server is ready"));
    if (port_.empty()) port_ = PortIn(process_->err());
  }
  void Kill() {
    process_->Signal(SIGKILL);
    process_->Finish();
  }
  std::string url() const { return scheme_ + "://127.0.0.1:" + port_; }

 private:
  static std::string PortIn(const std::string& log) {
    const std::string before = "client connections on 127.0.0.1:";
    const size_t at = log.find(before);
    EXPECT_NE(at, log.npos) << log;
    return at == log.npos ? "0" : log.substr(at + before.size(), log.find('\n', at) - at - before.size());
  }

  const std::filesystem::path folder_;
  const Arguments more_;
  const std::string scheme_;
  std::string port_;
  std::unique_ptr<RunningProgram> process_;
};

// Drawn in no time, and long enough to be killed.
inline constexpr const char* kQuickJob =
    R"({"prompt": "a red circle", "width": 64, "height": 48, "steps": 2, "seed": 7})";
inline constexpr const char* kLongJob =
    R"({"prompt": "a star", "width": 512, "height": 512, "steps": 30, "seed": 9})";

inline const Arguments kQuickly = {"--dead-after", "1"};

class Nats : public Cli {
 protected:
  static Arguments At(const NatsServer& server, const Arguments& more = {}) {
    return Arguments{"--nats", server.url()} + more;
  }

  // A worker that waits for jobs. A job of one that is killed goes to another after a second.
  std::unique_ptr<RunningProgram> Work(const NatsServer& server, const Arguments& more = kQuickly,
                                       RunOptions options = {}) const {
    options.folder = folder_.path();
    auto worker =
        std::make_unique<RunningProgram>(Arguments{"work", "--threads", "1"} + At(server, more), options);
    EXPECT_NE(worker->WaitForOutput("waits for jobs of"), "");
    return worker;
  }

  // Jobs, a line each.
  RunResult Submit(const NatsServer& server, const std::string& lines, const Arguments& more = {}) const {
    folder_.Write("jobs.jsonl", lines);
    return Run(Arguments{"submit", "jobs.jsonl"} + At(server, more));
  }
  // The id in "line 1: ID sent".
  static std::string IdIn(const RunResult& submitted) {
    const size_t at = submitted.out.find(": ");
    EXPECT_NE(at, submitted.out.npos) << submitted.out << submitted.err;
    return at == submitted.out.npos ? "" : submitted.out.substr(at + 2, 32);
  }

  static std::string StopInGoodOrder(RunningProgram& program) {
    program.Signal(SIGINT);
    const RunResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  static void Kill(RunningProgram& program) {
    program.Signal(SIGKILL);
    EXPECT_EQ(program.Finish().exit_code, 128 + SIGKILL);
  }

  // The picture that is drawn without a queue.
  Image Alone(uint64_t seed = 7, const Arguments& more = {}) const {
    return Draw(Arguments{"a red circle", "--size", "64x48", "--steps", "2", "--seed", std::to_string(seed)} +
                more);
  }
  Image LongAlone() const { return Draw({"a star", "--size", "512x512", "--steps", "30", "--seed", "9"}); }
};

// The test as a client of the server, below the commands.
struct NatsClient {
  explicit NatsClient(const NatsServer& server)
      : connection(queue::Connect({.url = server.url()}, "a test")),
        jetstream(*connection),
        board(jetstream) {}

  std::unique_ptr<queue::NatsConnection> connection;
  queue::JetStream jetstream;
  queue::Board board;
};

}  // namespace qwen_image

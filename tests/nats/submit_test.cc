// What submit and work refuse, who may be connected to, and the object store below them.
#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include "nats_fixture.h"

namespace qwen_image {
namespace {

using queue::StoreResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Nats, SubmitSaysWhichLineIsWrongAndSendsNothing) {
  const NatsServer server(folder_.path());
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"prompt": "x", "stpes": 4})", "stpes"},
      {R"({"prompt": "x", "steps": 0})", "steps must be a whole number from 1 to 200, not 0"},
      {R"({"width": 64})", "the prompt is missing"},
      {R"({"prompt": "x", "width": 33, "height": 32})", "33"},
      {R"({"prompt": "x")", "JSON"},
      {R"(["x"])", "object"}};
  for (const auto& [line, why] : wrong) {
    const RunResult result = Submit(server, std::string(kQuickJob) + "\n" + line + "\n");
    EXPECT_EQ(result.exit_code, kBadInput);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("jobs.jsonl, line 2: "), HasSubstr(why), HasSubstr("nothing was sent")));
  }
  EXPECT_THAT(Submit(server, "\n\n").err, HasSubstr("jobs.jsonl holds no job"));
  EXPECT_THAT(Run(Arguments{"submit", "absent.jsonl"} + At(server)).err,
              HasSubstr("cannot read absent.jsonl"));
  NatsClient client(server);
  client.board.Need();
  EXPECT_EQ(client.board.Waiting(), 0u);
}

TEST_F(Nats, TheSameLineIsTheSameJob) {
  const NatsServer server(folder_.path());
  const std::string twice = std::string(kQuickJob) + "\n" + kQuickJob + "\n";
  EXPECT_EQ(Lines(Submit(server, twice).out).size(), 1u);
  EXPECT_THAT(Submit(server, twice).out, HasSubstr("is in the queue already"));
  NatsClient client(server);
  EXPECT_EQ(client.board.Waiting(), 1u);
}

std::string JobOf(int seed) {
  return fmt::format(R"({{"prompt": "x", "width": 32, "height": 32, "steps": 1, "seed": {}}})", seed) + "\n";
}

TEST_F(Nats, AFullQueueSaysSo) {
  const NatsServer server(folder_.path());
  const std::string three = JobOf(1) + JobOf(2) + JobOf(3);
  const RunResult full = Submit(server, three, {"--queue", "2"});
  EXPECT_EQ(full.exit_code, kCannotWrite);
  EXPECT_THAT(full.err, AllOf(HasSubstr("the queue is full: 0 jobs wait"), HasSubstr("nothing was sent")));
  NatsClient client(server);
  EXPECT_EQ(client.board.Waiting(), 0u);

  // What waits already needs no room.
  ASSERT_EQ(Submit(server, three, {"--queue", "3"}).exit_code, 0);
  const RunResult again = Submit(server, three, {"--queue", "3"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(client.board.Waiting(), 3u);
}

// Limits of the server's owner count more. What was sent before stays, and is not sent twice.
TEST_F(Nats, AServerThatTakesNoMoreLosesNothing) {
  const NatsServer server(folder_.path());
  NatsClient client(server);
  client.jetstream.NeedStream({{"name", "QWEN_IMAGE_JOBS"},
                               {"subjects", {"qwen_image.jobs.*.*"}},
                               {"retention", "workqueue"},
                               {"max_msgs", 2},
                               {"discard", "new"},
                               {"storage", "file"}});
  const std::string three = JobOf(1) + JobOf(2) + JobOf(3);
  const RunResult full = Submit(server, three);
  EXPECT_EQ(full.exit_code, kCannotWrite);
  EXPECT_THAT(full.err,
              AllOf(HasSubstr("full: 2 jobs wait"), HasSubstr("2 of 3 jobs were sent, from line 3 on none")));
  const auto worker = Work(server);
  while (client.board.Waiting() > 0) std::this_thread::yield();
  const RunResult again = Submit(server, three, {"--wait"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("is drawn already"), HasSubstr(" sent\n")));
}

TEST_F(Nats, OnlyThisMachineWithoutCredentials) {
  folder_.Write("jobs.jsonl", kQuickJob);
  folder_.Write("password", "correct-horse\n");
  for (const char* command : {"work", "submit", "serve"}) {
    const Arguments begin =
        command == std::string("submit") ? Arguments{command, "jobs.jsonl"} : Arguments{command};
    const auto at = [&](const char* url) { return begin + Arguments{"--nats", url}; };
    for (const char* url :
         {"nats://10.0.0.1:4222", "tls://queue.example.com", "nats://127.0.0.1.example.com"})
      ExpectRefused(at(url), kUsage, "without credentials");
    for (const char* url :
         {"http://127.0.0.1", "nats://", "nats://127.0.0.1:0", "nats://127.0.0.1:x", "nats://[::1"})
      ExpectRefused(at(url), kUsage, "--nats: ");
    const RunResult secret = Run(at("nats://user:correct-horse@127.0.0.1:4222"));
    EXPECT_EQ(secret.exit_code, kUsage);
    EXPECT_THAT(secret.err, AllOf(HasSubstr("must not hold a password"), Not(HasSubstr("horse"))));
    ExpectRefused(at("nats://127.0.0.1:1"), kBadInput, "there is no NATS server at nats://127.0.0.1:1");
    ExpectRefused(at("nats://127.0.0.1:1") + Arguments{"--nats-password-file", "password"}, kUsage,
                  "--nats-user");
    ExpectRefused(at("nats://127.0.0.1:1") + Arguments{"--nats-creds", "absent"}, kBadInput,
                  "--nats-creds: absent");
    ExpectRefused(at("nats://127.0.0.1:1") + Arguments{"--nats-cert", "password"}, kUsage,
                  "--nats-key belong together");
  }
}

TEST_F(Nats, CredentialsAreCheckedAndNotShown) {
  const NatsServer server(folder_.path(), {"--user", "drawer", "--pass", "correct-horse"});
  folder_.Write("right", "correct-horse\n");
  folder_.Write("wrong", "wrong-horse\n");
  const auto with = [&](const char* file) {
    return Arguments{"--nats-user", "drawer", "--nats-password-file", file};
  };
  for (const Arguments& more : {Arguments{}, with("wrong")}) {
    const RunResult refused = Submit(server, kQuickJob, more);
    EXPECT_EQ(refused.exit_code, kBadInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("refuses these credentials"), Not(HasSubstr("horse"))));
  }
  const auto worker = Work(server, with("right"));
  EXPECT_EQ(Submit(server, kQuickJob, with("right") + Arguments{"--wait"}).exit_code, 0);
  EXPECT_THAT(StopInGoodOrder(*worker), Not(HasSubstr("horse")));
  RunOptions options;
  options.environment = {{"QWEN_IMAGE_NATS_PASSWORD", "correct-horse"}};
  EXPECT_EQ(Run(Arguments{"submit", "jobs.jsonl", "--nats-user", "drawer"} + At(server), options).exit_code,
            0);
}

TEST_F(Nats, TokensWorkToo) {
  const NatsServer server(folder_.path(), {"--auth", "correct-horse"});
  folder_.Write("token", "correct-horse");
  EXPECT_THAT(Submit(server, kQuickJob).err, HasSubstr("refuses these credentials"));
  EXPECT_EQ(Submit(server, kQuickJob, {"--nats-token-file", "token"}).exit_code, 0);
}

// Certificates of an authority that the test makes.
class NatsTls : public Nats {
 protected:
  void SetUp() override {
    const auto openssl = [&](const std::string& arguments) {
      const RunResult result = Run({"-c", "openssl " + arguments}, {.program = "/bin/sh"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
    };
    folder_.Write("san", "subjectAltName=IP:127.0.0.1\n");
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority");
    for (const char* name : {"server", "client"}) {
      openssl(fmt::format("req -newkey rsa:2048 -nodes -keyout {0}.key -out {0}.csr -subj /CN={0}", name));
      openssl(fmt::format(
          "x509 -req -in {0}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out {0}.pem",
          name));
    }
  }
};

TEST_F(NatsTls, BothSidesAreChecked) {
  const NatsServer server(
      folder_.path(),
      {"--tls", "--tlscert", "server.pem", "--tlskey", "server.key", "--tlsverify", "--tlscacert", "ca.pem"},
      "tls");
  const Arguments ca = {"--nats-ca", "ca.pem"},
                  cert = {"--nats-cert", "client.pem", "--nats-key", "client.key"};
  EXPECT_EQ(Submit(server, kQuickJob, cert).exit_code, kBadInput) << "an authority that nobody knows";
  EXPECT_EQ(Submit(server, kQuickJob, ca).exit_code, kBadInput) << "no certificate";
  const auto worker = Work(server, ca + cert);
  const RunResult good = Submit(server, kQuickJob, ca + cert + Arguments{"--wait"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_NE(Submit(server, "x", ca).err.find("line 1"), std::string::npos) << "lines first";
}

TEST_F(Nats, AServerWithoutJetStreamIsToldApart) {
  folder_.Write("plain.conf", "");
  RunOptions options;
  options.folder = folder_.path();
  options.program = "/usr/sbin/nats-server";
  RunningProgram plain({"-a", "127.0.0.1", "-p", "-1"}, options);
  ASSERT_TRUE(plain.WaitForError("Server is ready"));
  const std::string before = "client connections on 127.0.0.1:";
  const std::string port = plain.err().substr(plain.err().find(before) + before.size());
  const std::string url = "nats://127.0.0.1:" + port.substr(0, port.find('\n'));
  folder_.Write("jobs.jsonl", kQuickJob);
  for (const Arguments& command : {Arguments{"work"}, Arguments{"submit", "jobs.jsonl"}}) {
    const RunResult result = Run(command + Arguments{"--nats", url});
    EXPECT_EQ(result.exit_code, kBadInput);
    EXPECT_THAT(result.err, HasSubstr("nats-server -js"));
  }
}

TEST_F(Nats, TheObjectStoreKeepsTheFirst) {
  const NatsServer server(folder_.path());
  NatsClient client(server);
  queue::ObjectStore& store = client.board.objects();
  store.NeedBucket();
  std::string large;
  for (int i = 0; i < 300'000; ++i) large += static_cast<char>(i * i >> 3);
  EXPECT_TRUE(store.Put("large", large));
  EXPECT_FALSE(store.Put("large", "another"));
  EXPECT_EQ(store.Get("large", large.size()), large);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { store.Get("large", 1000); }),
              HasSubstr("at most 1000 are read"));
  EXPECT_TRUE(store.Put("none", ""));
  EXPECT_EQ(store.Get("none", 10), "");
  EXPECT_EQ(store.Get("absent", 10), std::nullopt);
  store.Delete("large");
  EXPECT_FALSE(store.Has("large"));
  EXPECT_EQ(client.jetstream.Subjects("OBJ_qwen_image", "$O.qwen_image.C.>").size(), 0u)
      << "its parts went, too";
  EXPECT_TRUE(store.Put("large", "another"));
  EXPECT_EQ(store.Get("large", 10), "another");
}

TEST_F(Nats, ADamagedObjectIsNoResult) {
  const NatsServer server(folder_.path());
  NatsClient client(server);
  queue::ObjectStore& store = client.board.objects();
  store.NeedBucket();
  const auto meta_of = [](const char* nuid, uint64_t size, uint64_t chunks) {
    return Json({{"name", "x"}, {"nuid", nuid}, {"size", size}, {"chunks", chunks}, {"digest", "SHA-256=x"}})
        .dump();
  };
  const std::string subject = "$O.qwen_image.M.eA==";
  client.jetstream.Store("$O.qwen_image.C.abc", "12345");
  for (const std::string& meta :
       {meta_of("abc", 5, 1), meta_of("abc", 4, 1), meta_of("abc", 9, 2), meta_of("", 0, 0),
        meta_of("a.*", 5, 1), std::string("[]"), std::string("x")}) {
    client.jetstream.Store(subject, meta);
    MessageOf(ErrorKind::kBadInput, [&] { store.Get("x", 100); });
  }
}

// NATS' own client for Python reads what was stored here, and the other way round.
TEST_F(Nats, TheOfficialClientReadsTheObjects) {
  const char* python = std::getenv("QWEN_IMAGE_NATS_PYTHON");
  if (!python) GTEST_SKIP() << "./run test --machines makes the environment with nats-py";
  const NatsServer server(folder_.path());
  const auto worker = Work(server);
  const RunResult submitted = Submit(server, kQuickJob, {"--wait"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  NatsClient client(server);
  const std::string large(400'000, 'x');
  client.board.objects().Put("large", large);
  const std::string name = IdIn(submitted) + "-0.png";
  const RunResult read =
      Run({(kSource / "tests/nats/read_objects.py").string(), server.url(), name, "read.png"},
          {.program = python});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(ReadPng(Path("read.png")).pixels, Alone().pixels);
  EXPECT_EQ(client.board.objects().Get("from python", 1 << 20), std::string(200'000, 'p'));
}

}  // namespace
}  // namespace qwen_image

// Jobs in the queue of a real NATS server, drawn by workers that are killed, stopped and told nonsense.
#include <fmt/format.h>

#include <thread>

#include "files/base64.h"
#include "nats_fixture.h"

namespace qwen_image {
namespace {

using queue::Board;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Nats, WorkersDrawWhatGenerateDraws) {
  const NatsServer server(folder_.path());
  const std::string two =
      R"({"prompt": "a red circle", "width": 64, "height": 48, "steps": 2, "seed": 8, "n": 2})";
  const auto worker = Work(server, {"--results", "pictures"});
  const RunResult submitted = Submit(server, std::string(kQuickJob) + "\n\n" + two + "\n", {"--wait"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_THAT(submitted.out, AllOf(HasSubstr("line 1: "), HasSubstr("line 3: "), HasSubstr(" done\n")));
  EXPECT_EQ(submitted.err, "");
  std::vector<std::filesystem::path> pictures;
  for (const auto& entry : std::filesystem::directory_iterator(Path("pictures")))
    pictures.push_back(entry.path());
  ASSERT_EQ(pictures.size(), 3u);
  std::set<uint64_t> seeds;
  for (const auto& picture : pictures) {
    const Json record = Json::parse(ReadPngText(picture)["qwen-image"]);
    const uint64_t seed = record.at("seed").get<uint64_t>();
    EXPECT_EQ(record.at("prompt"), "a red circle");
    EXPECT_EQ(record.at("model"), "tiny");
    EXPECT_EQ(ReadPng(picture).pixels, Alone(seed).pixels) << seed;
    seeds.insert(seed);
  }
  EXPECT_EQ(seeds, (std::set<uint64_t>{7, 8, 9}));
  StopInGoodOrder(*worker);
}

TEST_F(Nats, PicturesMayBeInTheObjectStore) {
  const NatsServer server(folder_.path());
  const auto worker = Work(server);
  const RunResult submitted = Submit(server, kQuickJob, {"--fetch", "fetched"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_EQ(ReadPng(Path("fetched/" + IdIn(submitted) + "-0.png")).pixels, Alone().pixels);
  EXPECT_THAT(Submit(server, kQuickJob).out, HasSubstr("is drawn already"));
  EXPECT_THAT(StopInGoodOrder(*worker), Not(HasSubstr("NATS server is gone")));
}

// Its base64 is larger than what the server takes as one message, so the request is an object, which goes
// with the job.
TEST_F(Nats, PicturesThatGoInTravelWithTheJob) {
  const NatsServer server(folder_.path());
  const auto worker = Work(server);
  ASSERT_EQ(Run({"generate", "x", "--size", "640x640", "--steps", "1", "-q", "-o", "large.png"}).exit_code,
            0);
  const Json job = {{"prompt", "a star"}, {"init_image", EncodeBase64(ReadBytes(Path("large.png")))},
                    {"width", 64},        {"height", 64},
                    {"steps", 2},         {"seed", 3}};
  ASSERT_GT(job.dump().size(), queue::kMaxMessageBytes);
  const RunResult submitted = Submit(server, job.dump(), {"--fetch", "fetched"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.out << submitted.err;
  EXPECT_EQ(
      ReadPng(Path("fetched/" + IdIn(submitted) + "-0.png")).pixels,
      Draw({"a star", "--init-image", "large.png", "--size", "64x64", "--steps", "2", "--seed", "3"}).pixels);
  NatsClient client(server);
  EXPECT_FALSE(client.board.objects().Has(queue::RequestObject(IdIn(submitted))))
      << "nobody needs it any more";
  StopInGoodOrder(*worker);
}

TEST_F(Nats, AKilledWorkersJobGoesOnElsewhere) {
  const NatsServer server(folder_.path());
  const Arguments shared = kQuickly + Arguments{"--results", "pictures", "--resume-dir", "states"};
  const auto first = Work(server, shared);
  const std::string id = IdIn(Submit(server, kLongJob));
  ASSERT_NE(first->WaitForOutput(id + " begins"), "");
  // The first state is there after the first step.
  const auto states = [&] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Path("states")))
      count += entry.path().extension() == ".safetensors";
    return count;
  };
  while (states() == 0) std::this_thread::yield();
  Kill(*first);
  const auto second = Work(server, shared);
  EXPECT_EQ(Submit(server, kLongJob, {"--wait"}).exit_code, 0);
  const std::string said = StopInGoodOrder(*second);
  EXPECT_THAT(said, AllOf(HasSubstr("(try 2)"), HasSubstr("goes on after step "), HasSubstr(id + " done")));
  EXPECT_EQ(ReadPng(Path("pictures/" + id + "-0.png")).pixels, LongAlone().pixels);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("pictures")), {}), 1);
  EXPECT_EQ(states(), 0u);
}

TEST_F(Nats, AJobThatKillsWorkersIsSetAside) {
  const NatsServer server(folder_.path());
  const std::string id = IdIn(Submit(server, kLongJob));
  for (int i = 0; i < 3; ++i) {
    const auto worker = Work(server);
    ASSERT_NE(worker->WaitForOutput(id + " begins"), "");
    Kill(*worker);
  }
  const auto last = Work(server);
  const RunResult result = Submit(server, kLongJob, {"--wait"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr(id + " failed: set aside after 3 tries"),
                                HasSubstr("nothing was heard of it")));
  const std::string said = StopInGoodOrder(*last);
  EXPECT_THAT(said, Not(HasSubstr(id + " begins")));
  NatsClient client(server);
  EXPECT_FALSE(client.board.InQueue("qwen-image", id));
  // Who sends it again, wants it tried again.
  EXPECT_THAT(Submit(server, kLongJob).out, HasSubstr(id + " sent"));
}

TEST_F(Nats, AWorkerThatIsStoppedGivesItsJobBack) {
  const NatsServer server(folder_.path());
  const auto first = Work(server, {"--dead-after", "3600"});
  const std::string id = IdIn(Submit(server, kLongJob));
  ASSERT_NE(first->WaitForOutput(id + " begins"), "");
  EXPECT_THAT(StopInGoodOrder(*first), HasSubstr(id + " goes back to the queue"));
  const auto second = Work(server, {"--dead-after", "3600"});
  EXPECT_NE(second->WaitForOutput(id + " done"), "");
  NatsClient client(server);
  EXPECT_FALSE(client.board.Read(id)->record.tries.at(0).counts);
}

TEST_F(Nats, TheServerMayBeGoneForAWhile) {
  NatsServer server(folder_.path());
  const auto worker = Work(server);
  const std::string id = IdIn(Submit(server, kLongJob));
  ASSERT_NE(worker->WaitForOutput(id + " begins"), "");
  server.Kill();
  ASSERT_NE(worker->WaitForOutput("the NATS server is gone"), "");
  const RunResult away = Submit(server, kQuickJob);
  EXPECT_EQ(away.exit_code, kBadInput);
  EXPECT_THAT(away.err, HasSubstr("there is no NATS server at " + server.url()));
  server.Start();
  ASSERT_NE(worker->WaitForOutput("the NATS server is back"), "");
  ASSERT_NE(worker->WaitForOutput(id + " done"), "");
  const RunResult fetched = Submit(server, kLongJob, {"--fetch", "fetched"});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_EQ(ReadPng(Path("fetched/" + id + "-0.png")).pixels, LongAlone().pixels);
}

TEST_F(Nats, AWorkerTakesOnlyJobsOfItsModelAndBuild) {
  const NatsServer server(folder_.path());
  const auto worker = Work(server, {"--instruction-set", "portable"});
  const RunResult other = Submit(server, kQuickJob, {"--queue-name", "another model"});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("no worker with the model another model is there"));
  const std::string of_build = IdIn(Submit(server, kLongJob, {"--same-build"}));
  EXPECT_NE(worker->WaitForOutput(of_build + " wants another build of this program"), "");
  const RunResult any = Submit(server, kQuickJob, {"--wait"});
  EXPECT_EQ(any.exit_code, 0);
  NatsClient client(server);
  EXPECT_TRUE(client.board.InQueue("another model", IdIn(other)));
  EXPECT_TRUE(client.board.InQueue("qwen-image", of_build));
  EXPECT_FALSE(client.board.InQueue("qwen-image", IdIn(any)));
}

// Whoever may write to the queue may write anything.
TEST_F(Nats, NonsenseInTheQueueEndsNoWorker) {
  const NatsServer server(folder_.path());
  const auto worker = Work(server, {"--results", "pictures"});
  NatsClient client(server);
  const auto id = [](int i) { return fmt::format("{:032x}", i); };
  const std::string deep(100'000, '[');
  const std::vector<std::string> texts = {
      "",
      "nonsense",
      "[]",
      deep,
      R"({"format": 1})",
      R"({"format": 2, "id": "00000000000000000000000000000005"})",
      R"({"format": 1, "id": "00000000000000000000000000000000", "request": {"prompt": "x"}})",
      R"({"format": 1, "id": "00000000000000000000000000000007", "request": []})",
      R"({"format": 1, "id": "00000000000000000000000000000008", "request": {"prompt": "x", "resume_folder": "/tmp/x"}})",
      R"({"format": 1, "id": "00000000000000000000000000000009", "request": {"prompt": "x", "steps": 1000000000}})",
      R"({"format": 1, "id": "0000000000000000000000000000000a"})"};
  for (size_t i = 0; i < texts.size(); ++i)
    client.jetstream.Store("qwen_image.jobs.qwen-image." + id(static_cast<int>(i)), texts[i]);
  client.jetstream.Store("qwen_image.jobs.qwen-image.no_id", "x");
  client.jetstream.Store("qwen_image.records." + id(77), "no record");
  client.jetstream.Store("qwen_image.jobs.qwen-image." + id(77), R"({"format": 1})");
  for (const char* what : {"control", "ask", "presence"})
    client.jetstream.Publish(fmt::format("qwen_image.{}.x", what), deep);
  const RunResult good = Submit(server, kQuickJob, {"--wait"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto known = client.board.Read(id(static_cast<int>(i)));
    ASSERT_TRUE(known) << texts[i].substr(0, 80);
    EXPECT_EQ(known->record.job.state, jobs::State::kFailed) << texts[i].substr(0, 80);
    EXPECT_NE(known->record.job.error, "");
  }
  EXPECT_EQ(client.board.Waiting(), 0u);
  EXPECT_THAT(StopInGoodOrder(*worker), HasSubstr("no job of qwen-image, and was taken out"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("pictures")), {}), 1);
}

}  // namespace
}  // namespace qwen_image

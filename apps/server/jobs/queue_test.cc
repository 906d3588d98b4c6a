#include "server/jobs/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "server/jobs/store.h"
#include "server/jobs/testing.h"

namespace qwen_image::jobs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class QueueTest : public testing::Test {
 protected:
  const TempFolder folder_;
};

TEST_F(QueueTest, DrawsWhatGenerateDraws) {
  Queue jobs(TinyPipeline(), folder_.path(), {}, {.model_name = "tiny"});
  Request request = QuickJob(5);
  request.count = 2;
  const std::string id = jobs.Submit(request);
  const Job job = WaitForEnd(jobs, id);
  ASSERT_EQ(job.state, State::kDone) << job.error;
  ASSERT_EQ(job.images.size(), 2u);
  EXPECT_EQ(job.images[1].seed, 6u);
  EXPECT_EQ(job.progress.fraction, 1);
  EXPECT_GE(job.finished, job.started);
  for (int64_t i = 0; i < 2; ++i) {
    const auto png = jobs.ReadPng(id, i);
    ASSERT_TRUE(png);
    request.request.seed = 5 + static_cast<uint64_t>(i);
    const Picture expected = TinyPipeline().Generate(request.request);
    EXPECT_EQ(DecodePng(*png, "reply", {}).width, 32);
    const std::filesystem::path file = folder_.Write("copy.png", *png);
    EXPECT_EQ(ReadPng(file).pixels, expected.pixels);
    const Json record = Json::parse(ReadPngText(file)["qwen-image"]);
    EXPECT_EQ(record["seed"], 5 + i);
    EXPECT_EQ(record["prompt"], "a red circle");
    EXPECT_EQ(record["model"], "tiny");
  }
  EXPECT_FALSE(jobs.ReadPng(id, 2));
  EXPECT_FALSE(jobs.ReadPng(id, -1));
  EXPECT_FALSE(jobs.ReadPng("../" + id, 0));
}

TEST_F(QueueTest, ARequestThatCannotBeDrawnIsRefused) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  Request request = QuickJob();
  request.request.width = 33;
  MessageOf(ErrorKind::kUsage, [&] { jobs.Submit(request); });
  EXPECT_THAT(jobs.List(), IsEmpty());
}

TEST_F(QueueTest, ARunningJobStopsWithinAStepAndTheNextIsDrawn) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob()), next = jobs.Submit(QuickJob());
  WaitForSteps(jobs, running);
  EXPECT_EQ(jobs.Find(next)->progress.position, 1);
  EXPECT_TRUE(jobs.Cancel(running));
  const Job job = WaitForEnd(jobs, running);
  EXPECT_EQ(job.state, State::kCancelled);
  EXPECT_LT(job.progress.step, job.progress.steps);
  EXPECT_FALSE(jobs.Cancel(running));
  EXPECT_EQ(WaitForEnd(jobs, next).state, State::kDone);
}

TEST_F(QueueTest, AWaitingJobIsCancelledAtOnce) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob()), first = jobs.Submit(LongJob()),
                    second = jobs.Submit(LongJob());
  WaitForSteps(jobs, running);
  EXPECT_EQ(jobs.Find(second)->progress.position, 2);
  EXPECT_TRUE(jobs.Cancel(first));
  EXPECT_EQ(jobs.Find(first)->state, State::kCancelled);
  EXPECT_EQ(jobs.Find(first)->started, 0);
  EXPECT_EQ(jobs.Find(second)->progress.position, 1);
  EXPECT_FALSE(jobs.Remove(running));
  EXPECT_TRUE(jobs.Remove(first));
  EXPECT_FALSE(jobs.Find(first));
}

TEST_F(QueueTest, TheQueueIsBounded) {
  Queue jobs(TinyPipeline(), folder_.path(), {.queue = 2});
  const std::string running = jobs.Submit(LongJob());
  WaitForSteps(jobs, running);
  jobs.Submit(LongJob());
  jobs.Submit(LongJob());
  try {
    jobs.Submit(LongJob());
    ADD_FAILURE() << "a third job waits";
  } catch (const QueueFull& full) {
    EXPECT_EQ(full.waiting, 2);
    EXPECT_GE(full.retry_after_seconds, 1);
  }
  EXPECT_EQ(jobs.List().size(), 3u);
}

TEST_F(QueueTest, PicturesOfWaitingJobsAreBounded) {
  Queue jobs(TinyPipeline(), folder_.path(), {.waiting_bytes = 10000});
  Request with_picture = LongJob();
  with_picture.request.width = with_picture.request.height = {};
  with_picture.request.init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3)};
  WaitForSteps(jobs, jobs.Submit(LongJob()));
  jobs.Submit(with_picture);  // one may be large
  EXPECT_THROW(jobs.Submit(with_picture), QueueFull);
}

TEST_F(QueueTest, NewestFirstAndTheOldestAreForgotten) {
  Queue jobs(TinyPipeline(), folder_.path(), {.kept = 2});
  std::vector<std::string> ids;
  for (uint64_t seed = 0; seed < 4; ++seed) ids.push_back(jobs.Submit(QuickJob(seed)));
  jobs.Drain(true);
  const std::vector<Job> list = jobs.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, ids[3]);
  EXPECT_EQ(list[1].id, ids[2]);
  EXPECT_EQ(folder_.FileCount(), 5u);  // two records, two pictures, the lock
}

TEST_F(QueueTest, JobsWithoutAPictureDoNotPushOutPictures) {
  Queue jobs(TinyPipeline(), folder_.path(), {.queue = 2, .kept = 2});
  const std::string first = jobs.Submit(QuickJob(1)), second = jobs.Submit(QuickJob(2));
  WaitForEnd(jobs, second);
  std::vector<std::string> cancelled;
  for (int i = 0; i < 5; ++i) {
    cancelled.push_back(jobs.Submit(LongJob()));
    jobs.Cancel(cancelled.back());
    WaitForEnd(jobs, cancelled.back());
  }
  jobs.Drain(true);
  // Newest first: as many as can wait, and one; then the pictures.
  std::vector<std::string> ids;
  for (const Job& job : jobs.List()) ids.push_back(job.id);
  EXPECT_THAT(ids, testing::ElementsAre(cancelled[4], cancelled[3], cancelled[2], second, first));
  EXPECT_TRUE(jobs.ReadPng(first, 0));
}

TEST_F(QueueTest, AfterARestartJobsAreThereAndInterruptedOnesAreSaidToBe) {
  std::string done, running, waiting;
  {
    Queue jobs(TinyPipeline(), folder_.path(), {});
    done = jobs.Submit(QuickJob());
    WaitForEnd(jobs, done);
    running = jobs.Submit(LongJob());
    waiting = jobs.Submit(LongJob());
    WaitForSteps(jobs, running);
  }
  Queue jobs(TinyPipeline(), folder_.path(), {});
  EXPECT_EQ(jobs.Find(done)->state, State::kDone);
  EXPECT_TRUE(jobs.ReadPng(done, 0));
  EXPECT_EQ(jobs.Find(running)->state, State::kInterrupted);
  EXPECT_THAT(jobs.Find(running)->error, HasSubstr("while this job was drawn"));
  EXPECT_EQ(jobs.Find(waiting)->state, State::kInterrupted);
  EXPECT_THAT(jobs.Find(waiting)->error, HasSubstr("before this job began"));
  EXPECT_LT(jobs.Find(running)->created, jobs.Find(waiting)->created) << "submitted within a millisecond";
  EXPECT_EQ(jobs.List().front().id, waiting);
}

TEST_F(QueueTest, AShorterQueueAfterARestartLosesNoJob) {
  std::vector<std::string> ids;
  {
    const Store store(folder_.path());
    for (int64_t i = 0; i < 9; ++i) {
      ids.push_back(NewJobId());
      store.Write(
          Job{.id = ids.back(), .state = State::kQueued, .created = i + 1, .settings = {.prompt = "x"}});
    }
  }
  const Queue jobs(TinyPipeline(), folder_.path(), {.queue = 2});
  for (const std::string& id : ids) {
    ASSERT_TRUE(jobs.Find(id)) << id;
    EXPECT_EQ(jobs.Find(id)->state, State::kInterrupted);
  }
}

TEST_F(QueueTest, AKilledServersJobsAreSaidToBeInterrupted) {
  Job running{
      .id = NewJobId(), .state = State::kRunning, .created = 1, .started = 2, .settings = {.prompt = "x"}};
  Job waiting{.id = NewJobId(), .state = State::kQueued, .created = 3, .settings = {.prompt = "x"}};
  {
    const Store store(folder_.path());
    store.Write(running);
    store.Write(waiting);
  }
  {
    const Queue jobs(TinyPipeline(), folder_.path(), {});
    EXPECT_EQ(jobs.Find(running.id)->state, State::kInterrupted);
    EXPECT_EQ(jobs.Find(waiting.id)->state, State::kInterrupted);
  }
  const Store store(folder_.path());  // also on disk
  for (const Job& job : store.Load().jobs) EXPECT_EQ(job.state, State::kInterrupted);
}

TEST_F(QueueTest, DrainFinishesTheRunningJobAndTakesNoMore) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  const std::string first = jobs.Submit(LongJob());  // so that nothing happens before all is arranged
  const std::string running = jobs.Submit(QuickJob()), waiting = jobs.Submit(QuickJob());
  std::thread draining;
  const auto subscription = jobs.Subscribe(running, [&](const Job& job, const Event&) {
    if (job.state != State::kRunning || draining.joinable()) return;
    draining = std::thread([&] { jobs.Drain(false); });
    for (bool refused = false; !refused; std::this_thread::yield()) {
      try {
        jobs.Submit(QuickJob());
      } catch (const QueueFull&) {
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInterrupted);
        refused = true;
      }
    }
    // Those who wait hear of it now, not when this job is done.
    while (!HasEnded(jobs.Find(waiting)->state)) std::this_thread::yield();
  });
  jobs.Cancel(first);
  EXPECT_EQ(WaitForEnd(jobs, running).state, State::kDone);
  EXPECT_EQ(WaitForEnd(jobs, waiting).state, State::kInterrupted);
  draining.join();
  for (const Job& job : jobs.List()) EXPECT_TRUE(HasEnded(job.state));
}

TEST_F(QueueTest, StopInterruptsTheRunningJob) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob());
  WaitForSteps(jobs, running);
  jobs.Stop();
  EXPECT_EQ(WaitForEnd(jobs, running).state, State::kInterrupted);
}

TEST_F(QueueTest, ObserversHearAtOnceAndOfTheEndOnce) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  const std::string id = jobs.Submit(LongJob());
  WaitForSteps(jobs, id);
  int calls = 0, ends = 0;
  const auto late = jobs.Subscribe(id, [&](const Job& job, const Event& event) {
    if (calls++ == 0) {
      EXPECT_EQ(event.kind, Event::Kind::kProgress);
      EXPECT_EQ(job.state, State::kRunning);
      EXPECT_GT(job.progress.step, 0);
    }
    ends += event.kind == Event::Kind::kEnd;
  });
  EXPECT_GE(calls, 1);
  jobs.Cancel(id);
  WaitForEnd(jobs, id);
  jobs.Drain(false);
  EXPECT_EQ(ends, 1);
  const auto after =
      jobs.Subscribe(id, [&](const Job&, const Event& event) { ends += event.kind == Event::Kind::kEnd; });
  EXPECT_EQ(ends, 2);
  EXPECT_FALSE(jobs.Subscribe("nobody", [](const Job&, const Event&) {}));
}

TEST_F(QueueTest, PreviewsAreMadeForThoseWhoWatch) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  Request request = QuickJob();
  request.request.steps = 3;
  std::vector<std::string> previews;
  const std::string first = jobs.Submit(LongJob());  // so that the other one has not begun
  const std::string id = jobs.Submit(request);
  const auto subscription = jobs.Subscribe(id, [&](const Job&, const Event& event) {
    if (event.kind == Event::Kind::kPreview) previews.push_back(event.preview_png);
  });
  jobs.Cancel(first);
  jobs.Drain(true);
  ASSERT_EQ(previews.size(), 2u);
  EXPECT_EQ(DecodePng(previews[0], "preview", {}).width, 32);
}

TEST_F(QueueTest, AFolderThatGoesAwayIsReportedAndTheServerGoesOn) {
  const std::filesystem::path folder = folder_.path() / "jobs";
  Queue jobs(TinyPipeline(), folder, {});
  std::filesystem::remove_all(folder);  // as a disk that goes away
  MessageOf(ErrorKind::kCannotWrite, [&] { jobs.Submit(QuickJob()); });
  std::filesystem::create_directory(folder);
  const std::string id = jobs.Submit(LongJob());
  WaitForSteps(jobs, id);
  std::filesystem::remove_all(folder);
  jobs.Cancel(id);
  const Job job = WaitForEnd(jobs, id);
  EXPECT_EQ(job.state, State::kCancelled);
  ASSERT_EQ(job.notes.size(), 1u);
  EXPECT_THAT(job.notes[0], HasSubstr("will be lost"));
}

TEST_F(QueueTest, StatsCount) {
  Queue jobs(TinyPipeline(), folder_.path(), {});
  WaitForEnd(jobs, jobs.Submit(QuickJob()));
  jobs.Drain(true);
  const QueueStats stats = jobs.Stats();
  EXPECT_EQ(stats.pictures, 1);
  EXPECT_EQ(stats.steps, 1);
  EXPECT_EQ(stats.jobs.at(State::kDone), 1);
  EXPECT_EQ(stats.ended.at(State::kDone), 1);
  EXPECT_GT(stats.last_seconds_per_step, 0);
}

}  // namespace
}  // namespace qwen_image::jobs

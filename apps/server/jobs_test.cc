#include "jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "files/png.h"
#include "job_store.h"
#include "server_testing.h"

namespace qwen_image::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class JobsTest : public testing::Test {
 protected:
  const TempFolder folder_;
};

TEST_F(JobsTest, DrawsWhatGenerateDraws) {
  Jobs jobs(TinyPipeline(), folder_.path(), {}, {.model_name = "tiny"});
  JobRequest request = QuickJob(5);
  request.count = 2;
  const std::string id = jobs.Submit(request);
  const Job job = WaitForEnd(jobs, id);
  ASSERT_EQ(job.state, JobState::kDone) << job.error;
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

TEST_F(JobsTest, ARequestThatCannotBeDrawnIsRefused) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  JobRequest request = QuickJob();
  request.request.width = 33;
  MessageOf(ErrorKind::kUsage, [&] { jobs.Submit(request); });
  EXPECT_THAT(jobs.List(), IsEmpty());
}

TEST_F(JobsTest, ARunningJobStopsWithinAStepAndTheNextIsDrawn) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob()), next = jobs.Submit(QuickJob());
  WaitForSteps(jobs, running);
  EXPECT_EQ(jobs.Find(next)->progress.position, 1);
  EXPECT_TRUE(jobs.Cancel(running));
  const Job job = WaitForEnd(jobs, running);
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_LT(job.progress.step, job.progress.steps);
  EXPECT_FALSE(jobs.Cancel(running));
  EXPECT_EQ(WaitForEnd(jobs, next).state, JobState::kDone);
}

TEST_F(JobsTest, AWaitingJobIsCancelledAtOnce) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob()), first = jobs.Submit(LongJob()),
                    second = jobs.Submit(LongJob());
  WaitForSteps(jobs, running);
  EXPECT_EQ(jobs.Find(second)->progress.position, 2);
  EXPECT_TRUE(jobs.Cancel(first));
  EXPECT_EQ(jobs.Find(first)->state, JobState::kCancelled);
  EXPECT_EQ(jobs.Find(first)->started, 0);
  EXPECT_EQ(jobs.Find(second)->progress.position, 1);
  EXPECT_FALSE(jobs.Remove(running));
  EXPECT_TRUE(jobs.Remove(first));
  EXPECT_FALSE(jobs.Find(first));
}

TEST_F(JobsTest, TheQueueIsBounded) {
  Jobs jobs(TinyPipeline(), folder_.path(), {.queue = 2});
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

TEST_F(JobsTest, PicturesOfWaitingJobsAreBounded) {
  Jobs jobs(TinyPipeline(), folder_.path(), {.waiting_bytes = 10000});
  JobRequest with_picture = LongJob();
  with_picture.request.width = with_picture.request.height = {};
  with_picture.request.init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3)};
  WaitForSteps(jobs, jobs.Submit(LongJob()));
  jobs.Submit(with_picture);  // one may be large
  EXPECT_THROW(jobs.Submit(with_picture), QueueFull);
}

TEST_F(JobsTest, NewestFirstAndTheOldestAreForgotten) {
  Jobs jobs(TinyPipeline(), folder_.path(), {.kept = 2});
  std::vector<std::string> ids;
  for (uint64_t seed = 0; seed < 4; ++seed) ids.push_back(jobs.Submit(QuickJob(seed)));
  jobs.Drain(true);
  const std::vector<Job> list = jobs.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, ids[3]);
  EXPECT_EQ(list[1].id, ids[2]);
  EXPECT_EQ(folder_.FileCount(), 5u);  // two records, two pictures, the lock
}

TEST_F(JobsTest, JobsWithoutAPictureDoNotPushOutPictures) {
  Jobs jobs(TinyPipeline(), folder_.path(), {.queue = 2, .kept = 2});
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

TEST_F(JobsTest, AfterARestartJobsAreThereAndInterruptedOnesAreSaidToBe) {
  std::string done, running, waiting;
  {
    Jobs jobs(TinyPipeline(), folder_.path(), {});
    done = jobs.Submit(QuickJob());
    WaitForEnd(jobs, done);
    running = jobs.Submit(LongJob());
    waiting = jobs.Submit(LongJob());
    WaitForSteps(jobs, running);
  }
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  EXPECT_EQ(jobs.Find(done)->state, JobState::kDone);
  EXPECT_TRUE(jobs.ReadPng(done, 0));
  EXPECT_EQ(jobs.Find(running)->state, JobState::kInterrupted);
  EXPECT_THAT(jobs.Find(running)->error, HasSubstr("while this job was drawn"));
  EXPECT_EQ(jobs.Find(waiting)->state, JobState::kInterrupted);
  EXPECT_THAT(jobs.Find(waiting)->error, HasSubstr("before this job began"));
  EXPECT_LT(jobs.Find(running)->created, jobs.Find(waiting)->created) << "submitted within a millisecond";
  EXPECT_EQ(jobs.List().front().id, waiting);
}

TEST_F(JobsTest, AShorterQueueAfterARestartLosesNoJob) {
  std::vector<std::string> ids;
  {
    const JobStore store(folder_.path());
    for (int64_t i = 0; i < 9; ++i) {
      ids.push_back(NewJobId());
      store.Write(Job{.id = ids.back(), .state = JobState::kQueued, .created = i + 1, .prompt = "x"});
    }
  }
  const Jobs jobs(TinyPipeline(), folder_.path(), {.queue = 2});
  for (const std::string& id : ids) {
    ASSERT_TRUE(jobs.Find(id)) << id;
    EXPECT_EQ(jobs.Find(id)->state, JobState::kInterrupted);
  }
}

TEST_F(JobsTest, AKilledServersJobsAreSaidToBeInterrupted) {
  Job running{.id = NewJobId(), .state = JobState::kRunning, .created = 1, .started = 2, .prompt = "x"};
  Job waiting{.id = NewJobId(), .state = JobState::kQueued, .created = 3, .prompt = "x"};
  {
    const JobStore store(folder_.path());
    store.Write(running);
    store.Write(waiting);
  }
  {
    const Jobs jobs(TinyPipeline(), folder_.path(), {});
    EXPECT_EQ(jobs.Find(running.id)->state, JobState::kInterrupted);
    EXPECT_EQ(jobs.Find(waiting.id)->state, JobState::kInterrupted);
  }
  const JobStore store(folder_.path());  // also on disk
  for (const Job& job : store.Load().jobs) EXPECT_EQ(job.state, JobState::kInterrupted);
}

TEST_F(JobsTest, DrainFinishesTheRunningJobAndTakesNoMore) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  const std::string first = jobs.Submit(LongJob());  // so that nothing happens before all is arranged
  const std::string running = jobs.Submit(QuickJob()), waiting = jobs.Submit(QuickJob());
  std::thread draining;
  const auto subscription = jobs.Subscribe(running, [&](const Job& job, const JobEvent&) {
    if (job.state != JobState::kRunning || draining.joinable()) return;
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
  EXPECT_EQ(WaitForEnd(jobs, running).state, JobState::kDone);
  EXPECT_EQ(WaitForEnd(jobs, waiting).state, JobState::kInterrupted);
  draining.join();
  for (const Job& job : jobs.List()) EXPECT_TRUE(HasEnded(job.state));
}

TEST_F(JobsTest, StopInterruptsTheRunningJob) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  const std::string running = jobs.Submit(LongJob());
  WaitForSteps(jobs, running);
  jobs.Stop();
  EXPECT_EQ(WaitForEnd(jobs, running).state, JobState::kInterrupted);
}

TEST_F(JobsTest, ObserversHearAtOnceAndOfTheEndOnce) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  const std::string id = jobs.Submit(LongJob());
  WaitForSteps(jobs, id);
  int calls = 0, ends = 0;
  const auto late = jobs.Subscribe(id, [&](const Job& job, const JobEvent& event) {
    if (calls++ == 0) {
      EXPECT_EQ(event.kind, JobEvent::Kind::kProgress);
      EXPECT_EQ(job.state, JobState::kRunning);
      EXPECT_GT(job.progress.step, 0);
    }
    ends += event.kind == JobEvent::Kind::kEnd;
  });
  EXPECT_GE(calls, 1);
  jobs.Cancel(id);
  WaitForEnd(jobs, id);
  jobs.Drain(false);
  EXPECT_EQ(ends, 1);
  const auto after = jobs.Subscribe(
      id, [&](const Job&, const JobEvent& event) { ends += event.kind == JobEvent::Kind::kEnd; });
  EXPECT_EQ(ends, 2);
  EXPECT_FALSE(jobs.Subscribe("nobody", [](const Job&, const JobEvent&) {}));
}

TEST_F(JobsTest, PreviewsAreMadeForThoseWhoWatch) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  JobRequest request = QuickJob();
  request.request.steps = 3;
  std::vector<std::string> previews;
  const std::string first = jobs.Submit(LongJob());  // so that the other one has not begun
  const std::string id = jobs.Submit(request);
  const auto subscription = jobs.Subscribe(id, [&](const Job&, const JobEvent& event) {
    if (event.kind == JobEvent::Kind::kPreview) previews.push_back(event.preview_png);
  });
  jobs.Cancel(first);
  jobs.Drain(true);
  ASSERT_EQ(previews.size(), 2u);
  EXPECT_EQ(DecodePng(previews[0], "preview", {}).width, 32);
}

TEST_F(JobsTest, AFolderThatGoesAwayIsReportedAndTheServerGoesOn) {
  const std::filesystem::path folder = folder_.path() / "jobs";
  Jobs jobs(TinyPipeline(), folder, {});
  std::filesystem::remove_all(folder);  // as a disk that goes away
  MessageOf(ErrorKind::kCannotWrite, [&] { jobs.Submit(QuickJob()); });
  std::filesystem::create_directory(folder);
  const std::string id = jobs.Submit(LongJob());
  WaitForSteps(jobs, id);
  std::filesystem::remove_all(folder);
  jobs.Cancel(id);
  const Job job = WaitForEnd(jobs, id);
  EXPECT_EQ(job.state, JobState::kCancelled);
  ASSERT_EQ(job.notes.size(), 1u);
  EXPECT_THAT(job.notes[0], HasSubstr("will be lost"));
}

TEST_F(JobsTest, StatsCount) {
  Jobs jobs(TinyPipeline(), folder_.path(), {});
  WaitForEnd(jobs, jobs.Submit(QuickJob()));
  jobs.Drain(true);
  const JobStats stats = jobs.Stats();
  EXPECT_EQ(stats.pictures, 1);
  EXPECT_EQ(stats.steps, 1);
  EXPECT_EQ(stats.jobs.at(JobState::kDone), 1);
  EXPECT_EQ(stats.ended.at(JobState::kDone), 1);
  EXPECT_GT(stats.last_seconds_per_step, 0);
}

}  // namespace
}  // namespace qwen_image::server

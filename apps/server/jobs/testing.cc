#include "server/jobs/testing.h"

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>

#include "files/testing.h"

namespace qwen_image::jobs {
namespace {

class Signal {
 public:
  void Set(const Job& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    changed_.notify_all();
  }
  Job Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLongForAnyMachine, [this] { return job_.has_value(); }));
    return job_.value_or(Job());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;
};

}  // namespace

const Pipeline& TinyPipeline() {
  static const Pipeline pipeline(std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny",
                                 {.threads = 1});
  return pipeline;
}

Request QuickJob(uint64_t seed) {
  Request job;
  job.request.prompt = "a red circle";
  job.request.width = job.request.height = 32;
  job.request.steps = 1;
  job.request.cfg = 1;
  job.request.seed = seed;
  return job;
}

Request LongJob() {
  Request job = QuickJob();
  job.request.width = job.request.height = 128;
  job.request.steps = 1000;
  job.count = 100;
  return job;
}

Job WaitForEnd(Queue& queue, const std::string& id) {
  Signal ended;
  const auto subscription = queue.Subscribe(id, [&](const Job& job, const Event& event) {
    if (event.kind == Event::Kind::kEnd) ended.Set(job);
  });
  EXPECT_TRUE(subscription);
  return subscription ? ended.Wait() : Job();
}

void WaitForSteps(Queue& queue, const std::string& id) {
  Signal begun;
  const auto subscription = queue.Subscribe(id, [&](const Job& job, const Event&) {
    if (job.progress.step > 0) begun.Set(job);
  });
  EXPECT_TRUE(subscription);
  if (subscription) begun.Wait();
}

}  // namespace qwen_image::jobs

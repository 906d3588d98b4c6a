#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace qwen_image {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      pool.ParallelFor(count, [&](int64_t i) { ++calls[i]; });
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << "task " << i << " of " << count;
    }
  }
}

// Jobs that follow at once meet threads that still look out for them, later ones find them asleep.
TEST(ThreadPool, RunsManyShortJobsInARowAndAfterAPause) {
  for (int threads : {2, 4, 64}) {  // 64: more than most machines have, so that no one spins out
    ThreadPool pool(threads);
    for (int job = 0; job < 300; ++job) {
      std::atomic<int64_t> sum = 0;
      pool.ParallelFor(5, [&](int64_t i) { sum += i + 1; });
      ASSERT_EQ(sum, 15) << "job " << job << " on " << threads << " threads";
      if (job % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

TEST(ThreadPool, WaitsForTheSlowestThread) {
  for (int threads : {2, 64}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 3; ++job) {
      std::atomic<int> done = 0;
      pool.ParallelFor(4, [&](int64_t i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1 + 5 * i));
        ++done;
      });
      ASSERT_EQ(done, 4) << "on " << threads << " threads";
    }
  }
}

TEST(ThreadPool, RethrowsATasksExceptionAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.ParallelFor(100,
                                [](int64_t i) {
                                  if (i == 37) throw std::runtime_error("37");
                                }),
               std::runtime_error);
  std::atomic<int> sum = 0;
  pool.ParallelFor(100, [&](int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace qwen_image

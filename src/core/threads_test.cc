#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
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

// ThreadPool: runs independent tasks on a fixed number of threads.
//
// No two tasks of a kernel add to the same number, and where the cuts between tasks could change a result's
// bits they follow the problem's size only. So results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace qwen_image {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 1: everything runs on the calling thread
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Calls task(i) once for every i in [0, count), in any order, on all threads; returns when all are done.
  // The first exception thrown by a task is rethrown here. Calls from several threads at once, or from inside
  // a task, are not allowed.
  void ParallelFor(int64_t count, const std::function<void(int64_t i)>& task);

 private:
  struct State;
  bool StartWorkers();  // false: not all could be started
  void StopWorkers();
  void Work();

  int threads_;
  std::unique_ptr<State> state_;
};

int DefaultThreadCount();  // the processors this process may use

inline constexpr int kMaxThreads = 1024;
// Throws Error kUsage; 0 stands for DefaultThreadCount.
void CheckThreadCount(int threads);

}  // namespace qwen_image

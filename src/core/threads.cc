#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/fail.h"

namespace qwen_image {
namespace {

// Tells the processor that this is a loop that waits.
void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;      // a new job or the end
  std::condition_variable finished;  // the last worker left the job
  const std::function<void(int64_t)>* task = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  // Changed under the mutex; read without it by threads that look before they sleep.
  std::atomic<uint64_t> job{0};
  std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  int spins = 0;  // SpinUntil tests its condition this many times
  std::exception_ptr error;
  std::vector<std::thread> workers;

  // Waits a little for a condition that is likely to come true at once: a kernel is mostly followed by the
  // next, and to sleep and be woken costs more than many of them take.
  template <class Condition>
  void SpinUntil(const Condition& condition) const {
    for (int i = 0; i < spins && !condition(); ++i) Pause();
  }

  // Takes tasks until none is left. After an exception the remaining tasks are skipped.
  void RunTasks() {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        (*task)(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(count);
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), state_(std::make_unique<State>()) {
  while (!StartWorkers()) {
    // The system gives no more; fewer threads do the same work. Only half of those it gave, because the
    // stacks of all of them would leave no memory for anything else.
    threads_ = std::max(1, static_cast<int>(state_->workers.size()) / 2);
    StopWorkers();
  }
}

ThreadPool::~ThreadPool() { StopWorkers(); }

bool ThreadPool::StartWorkers() {
  // Some 20 to 80 µs, depending on the processor. Threads that share processors do not spin: they would take
  // time from those that work.
  constexpr int kSpins = 2000;
  state_->spins = threads_ <= DefaultThreadCount() ? kSpins : 0;
  state_->stop = false;
  try {
    for (int i = 1; i < threads_; ++i) state_->workers.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void ThreadPool::StopWorkers() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (auto& worker : state_->workers) worker.join();
  state_->workers.clear();
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  std::unique_lock lock(state_->mutex);
  while (true) {
    lock.unlock();
    state_->SpinUntil([&] { return state_->stop || state_->job != seen; });
    lock.lock();
    state_->wake.wait(lock, [&] { return state_->stop || state_->job != seen; });
    if (state_->stop) return;
    seen = state_->job;
    lock.unlock();
    state_->RunTasks();
    lock.lock();
    if (--state_->busy == 0) state_->finished.notify_one();
  }
}

void ThreadPool::ParallelFor(int64_t count, const std::function<void(int64_t)>& task) {
  State& state = *state_;
  if (state.workers.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  {
    std::lock_guard lock(state.mutex);
    state.task = &task;
    state.count = count;
    state.next.store(0);
    state.error = nullptr;
    state.busy = static_cast<int>(state.workers.size());
    ++state.job;
  }
  state.wake.notify_all();
  state.RunTasks();
  state.SpinUntil([&] { return state.busy == 0; });
  std::unique_lock lock(state.mutex);
  state.finished.wait(lock, [&] { return state.busy == 0; });
  if (state.error) std::rethrow_exception(state.error);
}

int DefaultThreadCount() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void CheckThreadCount(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    Fail(ErrorKind::kUsage, "threads must be from 1 to {}, or 0 for all processors, not {}", kMaxThreads,
         threads);
}

}  // namespace qwen_image

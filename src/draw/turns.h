// Pictures of one pipeline are drawn one after another: they share its threads and its caches.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "qwen_image/cancel.h"

namespace qwen_image::draw {

class Turns {
 public:
  // The constructor waits until no other run draws. It throws if `cancel`, which may be null, is set, and
  // passes on what `on_wait` throws; `on_wait` may be empty and is called again and again while it waits.
  // It throws Error kUsage where it would wait forever: inside a callback of the same thread's own picture,
  // and in the child of a fork, which does not have the pipeline's threads.
  class Turn {
   public:
    explicit Turn(Turns& turns, const CancelFlag* cancel = nullptr, const std::function<void()>& on_wait = {})
        : turns_(turns) {
      constexpr std::chrono::milliseconds kLook(20);
      if (turns.process_ != getpid())
        Fail(ErrorKind::kUsage,
             "this pipeline was opened before the process forked; open another one in the child");
      if (turns.thread_ == std::this_thread::get_id() || waits_for_ == &turns)
        Fail(ErrorKind::kUsage,
             "this thread is drawing a picture; its callbacks cannot draw another with the same pipeline");
      lock_ = std::unique_lock(turns.mutex_, std::defer_lock);
      while (!lock_.try_lock_for(kLook)) {
        if (cancel) cancel->ThrowIfCancelled();
        if (on_wait) CallWhileWaiting(on_wait);
      }
      turns.thread_ = std::this_thread::get_id();
    }
    ~Turn() { turns_.thread_ = std::thread::id(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    void CallWhileWaiting(const std::function<void()>& on_wait) {
      struct Restored {
        const Turns* before;
        ~Restored() { waits_for_ = before; }
      };
      const Restored restored{std::exchange(waits_for_, &turns_)};
      on_wait();
    }

    static inline thread_local const Turns* waits_for_ = nullptr;  // while this thread's callback runs
    Turns& turns_;
    std::unique_lock<std::timed_mutex> lock_;
  };

 private:
  std::timed_mutex mutex_;
  const pid_t process_ = getpid();
  std::atomic<std::thread::id> thread_{};  // that draws
};

}  // namespace qwen_image::draw

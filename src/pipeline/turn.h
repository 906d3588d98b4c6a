// Pictures of one pipeline are drawn one after another: they share its threads and its caches.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "core/fail.h"
#include "qwen_image/cancel.h"

namespace qwen_image {

class Turns {
 public:
  // Waits until nobody else draws, or throws because of `cancel`, which may be null. Throws Error kUsage
  // where it would wait forever: inside a callback of the same thread's own picture, and in the child of a
  // fork, where the pipeline's threads are not.
  class Turn {
   public:
    explicit Turn(Turns& turns, const CancelFlag* cancel = nullptr) : turns_(turns) {
      constexpr std::chrono::milliseconds kLook(20);
      if (turns.process_ != getpid())
        Fail(ErrorKind::kUsage,
             "this pipeline was opened before the process forked; open another one in the child");
      if (turns.thread_ == std::this_thread::get_id())
        Fail(ErrorKind::kUsage,
             "a picture is being drawn by this thread; its callbacks cannot draw another with the same "
             "pipeline");
      lock_ = std::unique_lock(turns.mutex_, std::defer_lock);
      while (!lock_.try_lock_for(kLook)) {
        if (cancel) cancel->ThrowIfCancelled();
      }
      turns.thread_ = std::this_thread::get_id();
    }
    ~Turn() { turns_.thread_ = std::thread::id(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
    std::unique_lock<std::timed_mutex> lock_;
  };

 private:
  std::timed_mutex mutex_;
  const pid_t process_ = getpid();
  std::atomic<std::thread::id> thread_{};  // that draws
};

}  // namespace qwen_image

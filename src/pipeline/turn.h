// Pictures of one pipeline are drawn one after another: they share its threads and its caches.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "core/fail.h"

namespace qwen_image {

class Turns {
 public:
  // Waits until nobody else draws. Throws Error kUsage where that would be forever: inside a callback of the
  // same thread's own picture.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) {
      if (turns.thread_ == std::this_thread::get_id())
        Fail(ErrorKind::kUsage,
             "a picture is being drawn by this thread; its callbacks cannot draw another with the same "
             "pipeline");
      lock_ = std::unique_lock(turns.mutex_);
      turns.thread_ = std::this_thread::get_id();
    }
    ~Turn() { turns_.thread_ = std::thread::id(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> thread_{};  // that draws
};

}  // namespace qwen_image

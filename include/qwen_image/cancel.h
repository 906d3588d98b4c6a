// A request to stop that long computations look at between blocks. Set from any thread or a signal handler.
#pragma once

#include <atomic>

#include "qwen_image/error.h"

namespace qwen_image {

class CancelFlag {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  void ThrowIfCancelled() const {
    if (cancelled()) throw Error(ErrorKind::kInterrupted, "interrupted");
  }

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace qwen_image

// What a stage needs to compute: threads, a flag that stops it, a function that hears of its progress, a
// profile that gets the time of every operation, and the machines that share the work.
#pragma once

#include <cstdint>
#include <functional>

#include "core/profile.h"
#include "core/threads.h"
#include "qwen_image/cancel.h"
#include "qwen_image/machines.h"

namespace qwen_image {

namespace machines {
class Group;
}

struct Compute {
  ThreadPool& pool;
  const CancelFlag& cancel;
  std::function<void(double fraction)> on_progress = {};
  Profile* profile = nullptr;
  const machines::Group* group = nullptr;  // machines that compute this together; null: only this one
  Split split = Split::kSequence;

  // The same for pass `pass` of `passes` equal ones: its progress is a share of theirs.
  Compute ForPass(int64_t pass, int64_t passes) const {
    if (!on_progress) return *this;
    Compute compute = *this;
    compute.on_progress = [report = on_progress, pass, passes](double fraction) {
      report((static_cast<double>(pass) + fraction) / static_cast<double>(passes));
    };
    return compute;
  }

  // To be called before each of a stage's `total` parts.
  void Continue(size_t part, size_t total) const {
    cancel.ThrowIfCancelled();
    if (on_progress) on_progress(static_cast<double>(part) / static_cast<double>(total));
  }
};

}  // namespace qwen_image

// Reads all values of all tensors once, on all threads, in pieces whose pages are given back at once: a 40 GB
// folder needs a few megabytes.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/threads.h"
#include "inspect/inspected.h"
#include "qwen_image/cancel.h"

namespace qwen_image::inspect {

struct ScanContext {
  ThreadPool& pool;
  const CancelFlag& cancel;
  // Called now and then, never from two threads at once.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// Fills in checksums and statistics. Throws Error kInterrupted, and kBadInput if a file changes meanwhile.
void ScanTensors(std::vector<InspectedComponent>& components, const ScanContext& context);

// Opens the files again, makes the system forget what it kept of them, reads about `max_bytes` at most
// (evenly spread) in another way than the first time, and compares checksums with those of ScanTensors.
SecondReading ReadAgain(const std::vector<InspectedComponent>& components, int64_t max_bytes,
                        const ScanContext& context);

// Throws Error kBadInput if a file was changed or truncated since it was opened.
void ThrowIfDamaged(const std::vector<InspectedComponent>& components);

// Counts work done by all threads and passes it on.
class ProgressCounter {
 public:
  ProgressCounter(const ScanContext& context, int64_t total) : context_(context), total_(total) {}
  void Done(int64_t bytes);  // also throws Error kInterrupted if that was asked for

 private:
  const ScanContext& context_;
  int64_t total_;
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace qwen_image::inspect

// How kernels cut their work into tasks. Where a cut could change a result's bits it follows the problem's
// size only; all others also follow the number of threads, so that every thread gets its share (see
// balance_test.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/tensor.h"
#include "core/threads.h"

namespace qwen_image {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Consecutive pieces of [0, count), which differ by one item at most. A piece covers at least about 64 KB at
// `bytes_per_item`, which outweighs the cost of handing it to another thread. Where there is as much for
// every thread, all of them get the same number of pieces.
class Pieces {
 public:
  Pieces(int64_t count, int64_t bytes_per_item, int threads);

  int64_t count() const { return pieces_; }
  int64_t begin(int64_t piece) const {
    return piece * (items_ / pieces_) + std::min(piece, items_ % pieces_);
  }
  int64_t end(int64_t piece) const { return begin(piece + 1); }

 private:
  int64_t items_, pieces_;
};

// Calls task(begin, end) for all Pieces; a single one runs on the calling thread.
void ForPieces(int64_t count, int64_t bytes_per_item, ThreadPool& pool,
               const std::function<void(int64_t begin, int64_t end)>& task);

// Calls task(i) for i in [0, count), on the calling thread alone if all of it together is but a few
// multiplications.
void ForTasks(int64_t count, int64_t multiplications, ThreadPool& pool,
              const std::function<void(int64_t i)>& task);

// The calling thread's scratch memory, 64-byte aligned, not initialised. It stays valid until the next call
// on the same thread, and is kept for the thread's life: tasks need up to a huge page (2 MB), again and
// again.
float* ThreadScratch(int64_t floats);

// Memory that all tasks of one call share, 64-byte aligned, not initialised. What is not huge is kept for the
// calling thread's next call: new memory costs the time to clear it.
class SharedScratch {
 public:
  explicit SharedScratch(int64_t floats);
  ~SharedScratch();
  SharedScratch(const SharedScratch&) = delete;
  SharedScratch& operator=(const SharedScratch&) = delete;

  float* data() { return memory_.data(); }
  const float* data() const { return memory_.data(); }

 private:
  Tensor memory_;
};

}  // namespace qwen_image

#include "kernels/tasks.h"

#include <utility>

namespace qwen_image {

Pieces::Pieces(int64_t count, int64_t bytes_per_item, int threads) : items_(std::max<int64_t>(0, count)) {
  constexpr int64_t kPieceBytes = 64 * 1024;
  const int64_t least_items = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, bytes_per_item));
  const int64_t most_pieces = std::max<int64_t>(1, CeilDiv(items_, least_items));
  // Several pieces for each thread, so that one which is held up leaves work to the others; but of so many
  // items that one more or less makes no difference.
  constexpr int64_t kManyItems = 16;
  pieces_ = most_pieces < threads
                ? most_pieces
                : threads * std::clamp<int64_t>(items_ / (kManyItems * threads), 1, most_pieces / threads);
}

void ForPieces(int64_t count, int64_t bytes_per_item, ThreadPool& pool,
               const std::function<void(int64_t begin, int64_t end)>& task) {
  if (count <= 0) return;
  const Pieces pieces(count, bytes_per_item, pool.size());
  if (pieces.count() == 1) return task(0, count);
  pool.ParallelFor(pieces.count(), [&](int64_t i) { task(pieces.begin(i), pieces.end(i)); });
}

void ForTasks(int64_t count, int64_t multiplications, ThreadPool& pool,
              const std::function<void(int64_t i)>& task) {
  // Some 20 µs on one core, which is what waking another thread costs.
  constexpr int64_t kFew = 1024 * 1024;
  if (multiplications > kFew) return pool.ParallelFor(count, task);
  for (int64_t i = 0; i < count; ++i) task(i);
}

float* ThreadScratch(int64_t floats) {
  thread_local Tensor scratch;
  if (scratch.size() < floats) {
    constexpr int64_t kHugePage = 512 * 1024;  // floats
    scratch = Tensor();                        // give the old block back first
    scratch = Tensor({RoundUp(floats, kHugePage)});
  }
  return scratch.data();
}

namespace {
thread_local Tensor kept_scratch;
}

SharedScratch::SharedScratch(int64_t floats) : memory_(std::exchange(kept_scratch, Tensor())) {
  if (memory_.size() >= floats) return;
  memory_ = Tensor();  // give the old block back first
  memory_ = Tensor({floats});
}

SharedScratch::~SharedScratch() {
  constexpr int64_t kMost =
      16 * 1024 * 1024;  // 64 MB: the rows of the largest product of a 512 x 512 picture
  if (memory_.size() <= kMost && memory_.size() > kept_scratch.size()) kept_scratch = std::move(memory_);
}

}  // namespace qwen_image

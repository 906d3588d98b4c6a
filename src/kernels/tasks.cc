#include "kernels/tasks.h"

#include <algorithm>

#include "core/tensor.h"

namespace qwen_image {

void ForPieces(int64_t count, int64_t bytes_per_item, ThreadPool& pool,
               const std::function<void(int64_t begin, int64_t end)>& task) {
  constexpr int64_t kPieceBytes = 64 * 1024;
  if (count <= 0) return;
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, bytes_per_item));
  if (count <= piece) return task(0, count);
  pool.ParallelFor(CeilDiv(count, piece),
                   [&](int64_t i) { task(i * piece, std::min(count, (i + 1) * piece)); });
}

float* ThreadScratch(int64_t floats) {
  thread_local Tensor scratch;
  if (scratch.size() < floats) {
    scratch = Tensor();  // give the old block back first
    scratch = Tensor({floats});
  }
  return scratch.data();
}

}  // namespace qwen_image

#include <cmath>
#include <limits>

#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/gemm-inl.h"
#include "kernels/math-inl.h"

#ifndef QWEN_IMAGE_KERNELS_ATTENTION_ONCE_
#define QWEN_IMAGE_KERNELS_ATTENTION_ONCE_
namespace qwen_image {

// One task: some queries of one head against all keys, in blocks of keys.
struct AttentionTask {
  const float* q;  // first query of the task, its head
  const float* k;  // first key, the head's kv head
  const float* v;
  float* out;  // first query of the task, its head
  int64_t queries;
  int64_t first_query;  // its position, for the causal mask
  int64_t key_block;
};

}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// Queries whose logits (rows of kDepthBlock keys at most) are in flight at once: 48 KB.
constexpr int64_t kQueryBlock = 48;
static_assert(kQueryBlock % kTileRows == 0);

// The task's memory, all of it in L2 for usual shapes.
struct AttentionBuffers {
  int64_t depth_blocks;  // head_dim in blocks of kDepthBlock
  int64_t dim_cols;      // head_dim rounded up to whole tiles
  int64_t key_cols;      // key_block rounded up to whole tiles
  float* queries;        // [depth_blocks][queries][kDepthBlock]
  float* keys;           // [depth_blocks][key_cols / kTileCols][depth][kTileCols]
  float* values;         // [dim_cols / kTileCols][key_block][kTileCols]
  float* logits;         // [kQueryBlock][kDepthBlock]
  float* sums;           // [queries][dim_cols]: Σ exp(logit - largest) · v
  float* largest;        // [queries] the largest logit so far
  float* total;          // [queries] Σ exp(logit - largest)
  float* rescale;        // [kQueryBlock] what a new largest logit does to the older sums

  AttentionBuffers(const AttentionTask& task, const AttentionShape& shape) {
    depth_blocks = CeilDiv(shape.head_dim, kDepthBlock);
    dim_cols = RoundUp(shape.head_dim, kTileCols);
    key_cols = RoundUp(task.key_block, kTileCols);
    const int64_t rows = RoundUp(task.queries, 16);
    const int64_t sizes[] = {depth_blocks * rows * kDepthBlock,
                             key_cols * depth_blocks * kDepthBlock,
                             key_cols * dim_cols,
                             kQueryBlock * kDepthBlock,
                             rows * dim_cols,
                             rows,
                             rows,
                             kQueryBlock};
    float** const parts[] = {&queries, &keys, &values, &logits, &sums, &largest, &total, &rescale};
    int64_t floats = 0;
    for (int64_t size : sizes) floats += RoundUp(size, 16);
    float* next = ThreadScratch(floats);
    for (size_t i = 0; i < std::size(sizes); ++i) {
      *parts[i] = next;
      next += RoundUp(sizes[i], 16);
    }
  }
};

HWY_INLINE int64_t DepthOf(const AttentionShape& shape, int64_t block) {
  return std::min(kDepthBlock, shape.head_dim - block * kDepthBlock);
}

void PackQueries(const AttentionTask& task, const AttentionShape& shape, const AttentionBuffers& b) {
  for (int64_t block = 0; block < b.depth_blocks; ++block) {
    for (int64_t i = 0; i < task.queries; ++i) {
      std::memcpy(b.queries + (block * task.queries + i) * kDepthBlock,
                  task.q + i * shape.q_stride + block * kDepthBlock,
                  static_cast<size_t>(DepthOf(shape, block)) * sizeof(float));
    }
  }
  std::fill_n(b.sums, task.queries * b.dim_cols, 0.0f);
  std::fill_n(b.total, task.queries, 0.0f);
  std::fill_n(b.largest, task.queries, -std::numeric_limits<float>::infinity());
}

// Keys become panels [dim][keys] and values panels [key][dims]: the right-hand sides of the two products.
void PackKeysAndValues(const float* k, const float* v, int64_t keys, const AttentionShape& shape,
                       const AttentionBuffers& b) {
  for (int64_t block = 0; block < b.depth_blocks; ++block) {
    for (int64_t j = 0; j < keys; j += kTileCols) {
      PackPanel(k + j * shape.kv_stride + block * kDepthBlock, DType::kF32, shape.kv_stride,
                std::min(kTileCols, keys - j), DepthOf(shape, block),
                kTileCols * shape.kv_stride * static_cast<int64_t>(sizeof(float)),
                b.keys + (block * b.key_cols + j) * kDepthBlock);
    }
  }
  const F32 d;
  for (int64_t j = 0; j < keys; ++j) {
    const float* from = v + j * shape.kv_stride;
    float* to = b.values + j * kTileCols;
    int64_t c = 0;
    for (; c + kTileCols <= shape.head_dim; c += kTileCols, to += b.key_cols * kTileCols) {
      hn::Store(hn::LoadU(d, from + c), d, to);
      hn::Store(hn::LoadU(d, from + c + kLanes), d, to + kLanes);
    }
    if (c < shape.head_dim) {
      std::copy_n(from + c, shape.head_dim - c, to);
      std::fill_n(to + shape.head_dim - c, c + kTileCols - shape.head_dim, 0.0f);
    }
  }
}

// logits[i][j] = q_i · k_j
void Logits(int64_t first, int64_t queries, int64_t all_queries, int64_t keys, const AttentionShape& shape,
            const AttentionBuffers& b) {
  const F32 d;
  for (int64_t block = 0; block < b.depth_blocks; ++block) {
    for (int64_t j = 0; j < keys; j += kTileCols) {
      const float* panel = b.keys + (block * b.key_cols + j) * kDepthBlock;
      for (int64_t i = 0; i < queries; i += kTileRows) {
        const float* rows = b.queries + (block * all_queries + first + i) * kDepthBlock;
        float* to = b.logits + i * kDepthBlock + j;
        TileOfRows(std::min<int64_t>(kTileRows, queries - i), rows, panel, DepthOf(shape, block),
                   [&](int r, int64_t c, VF32 sum) HWY_ATTR {
                     float* at = to + r * kDepthBlock + c;
                     hn::Store(block == 0 ? sum : hn::Add(hn::Load(d, at), sum), d, at);
                   });
      }
    }
  }
}

HWY_INLINE float LargestOf(const float* row /*aligned*/, int64_t count, float largest) {
  const F32 d;
  VF32 m = hn::Set(d, largest);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) m = hn::Max(m, hn::Load(d, row + j));
  largest = hn::GetLane(hn::MaxOfLanes(d, m));
  for (; j < count; ++j) largest = std::max(largest, row[j]);
  return largest;
}

// row[j] = exp(scale · (row[j] - largest)) for j < count; returns the sum. What follows up to a whole vector
// is overwritten, with zeros.
HWY_INLINE float ExpRow(float* row /*aligned*/, int64_t count, float scale, float largest) {
  const F32 d;
  const VF32 s = hn::Set(d, scale);
  const VF32 offset = hn::Set(d, scale * largest);
  VF32 sum = hn::Zero(d);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const VF32 e = ExpNonPositive(d, hn::MulSub(hn::Load(d, row + j), s, offset));
    hn::Store(e, d, row + j);
    sum = hn::Add(sum, e);
  }
  if (j < count) {
    const VF32 e = ExpNonPositive(d, hn::MulSub(hn::Load(d, row + j), s, offset));
    const VF32 valid = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - j)), e);
    hn::Store(valid, d, row + j);
    sum = hn::Add(sum, valid);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Turns the block's logits into weights and keeps the running softmax of every query.
void Softmax(int64_t first, int64_t queries, int64_t keys,
             int64_t first_visible /*block's keys that query `first` sees*/, float scale,
             const AttentionBuffers& b) {
  for (int64_t i = 0; i < queries; ++i) {
    float* row = b.logits + i * kDepthBlock;
    const int64_t visible = std::clamp<int64_t>(first_visible + i, 0, keys);
    b.rescale[i] = 1.0f;
    if (visible > 0) {
      const float before = b.largest[first + i];
      const float largest = LargestOf(row, visible, before);
      if (largest != before) {
        b.rescale[i] = std::exp((before - largest) * scale);
        b.largest[first + i] = largest;
      }
      const float sum = ExpRow(row, visible, scale, largest);
      b.total[first + i] = b.total[first + i] * b.rescale[i] + sum;
    }
    std::fill_n(row + visible, keys - visible, 0.0f);
  }
}

// sums[i] = sums[i] · rescale[i] + Σ_j weights[i][j] · v_j
void AddValues(int64_t first, int64_t queries, int64_t keys, const AttentionShape& shape,
               const AttentionBuffers& b) {
  const F32 d;
  for (int64_t c = 0; c < shape.head_dim; c += kTileCols) {
    const float* panel = b.values + c * b.key_cols;
    for (int64_t i = 0; i < queries; i += kTileRows) {
      float* to = b.sums + (first + i) * b.dim_cols + c;
      const float* rescale = b.rescale + i;
      TileOfRows(std::min<int64_t>(kTileRows, queries - i), b.logits + i * kDepthBlock, panel, keys,
                 [&](int r, int64_t column, VF32 sum) HWY_ATTR {
                   float* at = to + r * b.dim_cols + column;
                   hn::Store(hn::MulAdd(hn::Load(d, at), hn::Set(d, rescale[r]), sum), d, at);
                 });
    }
  }
}

void RunAttentionTask(const AttentionTask& task, const AttentionShape& shape) {
  const AttentionBuffers b(task, shape);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  const int64_t all_keys = shape.causal ? std::min(shape.keys, task.first_query + task.queries) : shape.keys;
  PackQueries(task, shape, b);
  for (int64_t j = 0; j < all_keys; j += task.key_block) {
    const int64_t keys = std::min(task.key_block, all_keys - j);
    PackKeysAndValues(task.k + j * shape.kv_stride, task.v + j * shape.kv_stride, keys, shape, b);
    for (int64_t i = 0; i < task.queries; i += kQueryBlock) {
      const int64_t queries = std::min(kQueryBlock, task.queries - i);
      const int64_t first_visible = shape.causal ? task.first_query + i + 1 - j : keys;
      if (first_visible + queries - 1 <= 0) continue;
      Logits(i, queries, task.queries, keys, shape, b);
      Softmax(i, queries, keys, first_visible, scale, b);
      AddValues(i, queries, keys, shape, b);
    }
  }
  for (int64_t i = 0; i < task.queries; ++i) {
    const float factor = 1.0f / b.total[i];
    float* to = task.out + i * shape.heads * shape.head_dim;
    for (int64_t c = 0; c < shape.head_dim; ++c) to[c] = b.sums[i * b.dim_cols + c] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(RunAttentionTask);

void Attention(const float* q, const float* k, const float* v, const AttentionShape& shape, float* out,
               ThreadPool& pool) {
  if (shape.queries <= 0 || shape.heads <= 0 || shape.head_dim <= 0) return;
  // Long tasks reuse packed keys and values more often; many tasks keep many cores busy.
  constexpr int64_t kMaxQueries = 384;
  constexpr int64_t kMinQueries = 48;
  constexpr int64_t kWantedTasks = 32;
  const int64_t wanted_parts = CeilDiv(kWantedTasks, shape.heads);
  const int64_t task_queries =
      std::clamp(RoundUp(CeilDiv(shape.queries, wanted_parts), kMinQueries), kMinQueries, kMaxQueries);
  const int64_t parts = CeilDiv(shape.queries, task_queries);
  // 256 KB each of packed keys and values.
  const int64_t key_block = std::clamp<int64_t>(64 * 1024 / shape.head_dim / 32 * 32, 64, kDepthBlock);
  const int64_t multiplications = 2 * shape.queries * shape.keys * shape.heads * shape.head_dim;
  ForTasks(parts * shape.heads, multiplications, pool, [&](int64_t i) {
    const int64_t head = i / parts;
    const int64_t first = i % parts * task_queries;
    const int64_t kv_offset = head / (shape.heads / shape.kv_heads) * shape.head_dim;
    const AttentionTask task{q + first * shape.q_stride + head * shape.head_dim,
                             k + kv_offset,
                             v + kv_offset,
                             out + (first * shape.heads + head) * shape.head_dim,
                             std::min(task_queries, shape.queries - first),
                             first,
                             key_block};
    HWY_DYNAMIC_DISPATCH(RunAttentionTask)(task, shape);
  });
}

}  // namespace qwen_image
#endif

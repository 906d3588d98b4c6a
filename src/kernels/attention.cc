#include <cmath>
#include <limits>

#include "kernels/gemm.h"
#include "kernels/interface.h"

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

// The keys and values of all heads as the register tiles read them, packed once for all tasks, in blocks of
// keys. A block of `keys` keys (rounded up to whole tiles) is
//   keys:   [keys / tile][head_dim][tile]  panels of keys, transposed
//   values: [dim_cols / tile][keys][tile]  panels of a few dimensions
struct PackedKeys {
  PackedKeys(int64_t all_keys, const AttentionShape& shape)
      : keys(all_keys),
        key_cols(RoundUp(keys, kWidestTile)),
        dim_cols(RoundUp(shape.head_dim, kWidestTile)),
        half(shape.kv_heads * key_cols * dim_cols),
        memory(2 * half),
        data(memory.data()) {
    // As even as can be, so that the last block is not a stub: 128 KB each of keys and values at most.
    const int64_t largest = std::clamp<int64_t>(32 * 1024 / shape.head_dim / 32 * 32, 64, kDepthBlock);
    block = RoundUp(CeilDiv(keys, std::max<int64_t>(1, CeilDiv(keys, largest))), kWidestTile);
  }
  int64_t keys;
  int64_t key_cols, dim_cols;  // rounded up to whole tiles
  int64_t half;                // of the memory: keys in the first, values in the second
  SharedScratch memory;
  float* data;
  int64_t block;  // keys of a block; the last one has fewer

  int64_t blocks() const { return keys == 0 ? 0 : CeilDiv(keys, block); }
  int64_t KeysIn(int64_t b) const { return std::min(block, keys - b * block); }
  int64_t FloatsIn(int64_t b) const { return RoundUp(KeysIn(b), kWidestTile) * dim_cols; }
  float* KeysAt(int64_t kv_head, int64_t b) const {
    return data + (kv_head * key_cols + b * block) * dim_cols;
  }
  float* ValuesAt(int64_t kv_head, int64_t b) const { return KeysAt(kv_head, b) + half; }
};

// One task: some queries of one head against all keys.
struct AttentionTask {
  ConstView q;  // [the task's queries, head_dim]
  View out;     // the same
  int64_t kv_head;
  int64_t first_query;  // its position among the keys, for the causal mask

  int64_t queries() const { return q.rows; }
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
  float* queries;        // [depth_blocks][queries][kDepthBlock]
  float* logits;         // [kQueryBlock][kDepthBlock]
  float* sums;           // [queries][dim_cols]: Σ 2^(logit - offset) · v
  float* largest;        // [queries] the largest logit so far
  float* total;          // [queries] Σ 2^(logit - offset)
  float* rescale;        // [kQueryBlock] what a new largest logit does to the older sums

  AttentionBuffers(const AttentionTask& task, const AttentionShape& shape, int64_t packed_dim_cols)
      : depth_blocks(CeilDiv(shape.head_dim, kDepthBlock)), dim_cols(packed_dim_cols) {
    const int64_t rows = RoundUp(task.queries(), 16);
    const int64_t sizes[] = {depth_blocks * rows * kDepthBlock,
                             kQueryBlock * kDepthBlock,
                             rows * dim_cols,
                             rows,
                             rows,
                             kQueryBlock};
    float** const parts[] = {&queries, &logits, &sums, &largest, &total, &rescale};
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
    for (int64_t i = 0; i < task.queries(); ++i) {
      std::memcpy(b.queries + (block * task.queries() + i) * kDepthBlock, task.q.row(i) + block * kDepthBlock,
                  static_cast<size_t>(DepthOf(shape, block)) * sizeof(float));
    }
  }
  std::fill_n(b.sums, task.queries() * b.dim_cols, 0.0f);
  std::fill_n(b.total, task.queries(), 0.0f);
  std::fill_n(b.largest, task.queries(), -std::numeric_limits<float>::infinity());
}

// One block of one head.
void PackKeysAndValues(ConstView all_k, ConstView all_v, const AttentionShape& shape, int64_t kv_head,
                       int64_t block, const PackedKeys& packed) {
  const int64_t first = block * packed.block, keys = packed.KeysIn(block);
  const ConstView k = all_k.Rows(first, keys).Cols(kv_head * shape.head_dim, shape.head_dim);
  const ConstView v = all_v.Rows(first, keys).Cols(kv_head * shape.head_dim, shape.head_dim);
  float* const to_keys = packed.KeysAt(kv_head, block);
  for (int64_t j = 0; j < keys; j += kTileCols) {
    PackPanel(k.row(j), DType::kF32, k.stride, std::min(kTileCols, keys - j), shape.head_dim,
              kTileCols * k.stride * static_cast<int64_t>(sizeof(float)), to_keys + j * shape.head_dim);
  }
  const F32 d;
  for (int64_t j = 0; j < keys; ++j) {
    const float* from = v.row(j);
    float* to = packed.ValuesAt(kv_head, block) + j * kTileCols;
    int64_t c = 0;
    for (; c + kTileCols <= shape.head_dim; c += kTileCols, to += keys * kTileCols) {
      hn::Store(hn::LoadU(d, from + c), d, to);
      hn::Store(hn::LoadU(d, from + c + kLanes), d, to + kLanes);
    }
    if (c < shape.head_dim) {
      std::copy_n(from + c, shape.head_dim - c, to);
      std::fill_n(to + shape.head_dim - c, c + kTileCols - shape.head_dim, 0.0f);
    }
  }
}

// Some queries of a task and a block of keys.
struct AttentionStep {
  int64_t first;    // of the task's queries
  int64_t queries;  // at most kQueryBlock
  int64_t keys;     // that one of the queries sees
  const float* packed_keys;
  const float* packed_values;
  int64_t values_stride;  // from one panel of values to the next, in rows
};

// logits[i][j] = q_i · k_j
void Logits(const AttentionStep& step, int64_t all_queries, const AttentionShape& shape,
            const AttentionBuffers& b, FetchAhead& ahead) {
  const F32 d;
  for (int64_t block = 0; block < b.depth_blocks; ++block) {
    for (int64_t j = 0; j < step.keys; j += kTileCols) {
      const float* panel = step.packed_keys + j * shape.head_dim + block * kDepthBlock * kTileCols;
      for (int64_t i = 0; i < step.queries; i += kTileRows) {
        const float* rows = b.queries + (block * all_queries + step.first + i) * kDepthBlock;
        float* to = b.logits + i * kDepthBlock + j;
        ahead.WithTile();
        TileOfRows(std::min<int64_t>(kTileRows, step.queries - i), rows, panel, DepthOf(shape, block),
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

// row[j] = 2^(scale · row[j] - offset) for j < count; returns the sum. What follows up to a whole vector is
// overwritten, with zeros.
HWY_INLINE float Exp2Row(float* row /*aligned*/, int64_t count, float scale, float offset) {
  const F32 d;
  const VF32 s = hn::Set(d, scale);
  const VF32 o = hn::Set(d, offset);
  VF32 sum = hn::Zero(d);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const VF32 e = Exp2NonPositive(d, hn::MulSub(hn::Load(d, row + j), s, o));
    hn::Store(e, d, row + j);
    sum = hn::Add(sum, e);
  }
  if (j < count) {
    const VF32 e = Exp2NonPositive(d, hn::MulSub(hn::Load(d, row + j), s, o));
    const VF32 valid = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - j)), e);
    hn::Store(valid, d, row + j);
    sum = hn::Add(sum, valid);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Turns the block's logits into weights and keeps the running softmax of every query.
void Softmax(const AttentionStep& step, int64_t first_visible /*block's keys that the first query sees*/,
             float scale, const AttentionBuffers& b) {
  for (int64_t i = 0; i < step.queries; ++i) {
    float* row = b.logits + i * kDepthBlock;
    const int64_t visible = std::clamp<int64_t>(first_visible + i, 0, step.keys);
    b.rescale[i] = 1.0f;
    if (visible > 0) {
      const float before = b.largest[step.first + i];
      const float largest = LargestOf(row, visible, before);
      const float offset =
          largest * scale;  // rounded, but the same way for all weights and for the rescaling
      if (largest != before) {
        b.rescale[i] = std::exp2(before * scale - offset);
        b.largest[step.first + i] = largest;
      }
      const float sum = Exp2Row(row, visible, scale, offset);
      b.total[step.first + i] = b.total[step.first + i] * b.rescale[i] + sum;
    }
    std::fill_n(row + visible, step.keys - visible, 0.0f);
  }
}

// sums[i] = sums[i] · rescale[i] + Σ_j weights[i][j] · v_j
void AddValues(const AttentionStep& step, const AttentionShape& shape, const AttentionBuffers& b,
               FetchAhead& ahead) {
  const F32 d;
  for (int64_t c = 0; c < shape.head_dim; c += kTileCols) {
    const float* panel = step.packed_values + c * step.values_stride;
    for (int64_t i = 0; i < step.queries; i += kTileRows) {
      float* to = b.sums + (step.first + i) * b.dim_cols + c;
      const float* rescale = b.rescale + i;
      ahead.WithTile();
      TileOfRows(std::min<int64_t>(kTileRows, step.queries - i), b.logits + i * kDepthBlock, panel, step.keys,
                 [&](int r, int64_t column, VF32 sum) HWY_ATTR {
                   float* at = to + r * b.dim_cols + column;
                   hn::Store(hn::MulAdd(hn::Load(d, at), hn::Set(d, rescale[r]), sum), d, at);
                 });
    }
  }
}

void RunAttentionTask(const AttentionTask& task, const AttentionShape& shape, const PackedKeys& packed) {
  const AttentionBuffers b(task, shape, packed.dim_cols);
  constexpr double kLog2E = 1.4426950408889634;
  const float scale = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(shape.head_dim)));
  const int64_t all_keys =
      shape.causal ? std::min(packed.keys, task.first_query + task.queries()) : packed.keys;
  const int64_t tiles = CeilDiv(task.queries(), kTileRows);
  PackQueries(task, shape, b);
  for (int64_t block = 0; block * packed.block < all_keys; ++block) {
    const int64_t keys = std::min(packed.KeysIn(block), all_keys - block * packed.block);
    const float* const values = packed.ValuesAt(task.kv_head, block);
    // Values are fetched while the logits are computed, the next keys while the values are added up.
    FetchAhead next_values(values, packed.FloatsIn(block), tiles * CeilDiv(keys, kTileCols));
    FetchAhead next_keys;
    if (block + 1 < packed.blocks()) {
      next_keys = FetchAhead(packed.KeysAt(task.kv_head, block + 1), packed.FloatsIn(block + 1),
                             tiles * CeilDiv(shape.head_dim, kTileCols));
    }
    for (int64_t i = 0; i < task.queries(); i += kQueryBlock) {
      const AttentionStep step{i,      std::min(kQueryBlock, task.queries() - i),
                               keys,   packed.KeysAt(task.kv_head, block),
                               values, packed.KeysIn(block)};
      const int64_t first_visible = shape.causal ? task.first_query + i + 1 - block * packed.block : keys;
      if (first_visible + step.queries - 1 <= 0) continue;
      Logits(step, task.queries(), shape, b, next_values);
      Softmax(step, first_visible, scale, b);
      AddValues(step, shape, b, next_keys);
    }
  }
  for (int64_t i = 0; i < task.queries(); ++i) {
    const float factor = 1.0f / b.total[i];
    float* to = task.out.row(i);
    for (int64_t c = 0; c < shape.head_dim; ++c) to[c] = b.sums[i * b.dim_cols + c] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(PackKeysAndValues);
HWY_EXPORT(RunAttentionTask);

void Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out,
               ThreadPool& pool) {
  if (q.rows <= 0 || shape.heads <= 0 || shape.head_dim <= 0) return;
  const int64_t multiplications = 2 * q.rows * k.rows * shape.heads * shape.head_dim;
  const PackedKeys packed(k.rows, shape);
  ForTasks(shape.kv_heads * packed.blocks(), multiplications, pool, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(PackKeysAndValues)
    (k, v, shape, i / packed.blocks(), i % packed.blocks(), packed);
  });
  // Their copies and sums (72 KB each at head_dim 128), the logits and a block of keys and values fill most
  // of a 512 KB L2.
  constexpr int64_t kTaskQueries = 144;
  const int64_t keys_before = shape.causal ? k.rows - q.rows : 0;
  const int64_t parts = CeilDiv(q.rows, kTaskQueries);
  ForTasks(parts * shape.heads, multiplications, pool, [&](int64_t i) {
    const int64_t head = i / parts, col = head * shape.head_dim;
    const int64_t first = i % parts * kTaskQueries, queries = std::min(kTaskQueries, q.rows - first);
    const AttentionTask task{q.Rows(first, queries).Cols(col, shape.head_dim),
                             out.Rows(first, queries).Cols(col, shape.head_dim),
                             head / (shape.heads / shape.kv_heads), keys_before + first};
    HWY_DYNAMIC_DISPATCH(RunAttentionTask)(task, shape, packed);
  });
}

}  // namespace qwen_image
#endif

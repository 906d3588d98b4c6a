#include "kernels/int8/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/int8/attention_error.h"
#include "kernels/int8/cut.h"
#include "kernels/int8/packed_attention.h"
#include "kernels/int8/quantize.h"
#include "kernels/int8/tile.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/int8/fours-inl.h"
#include "kernels/int8/reduce-inl.h"
#include "kernels/math-inl.h"

#ifndef QWEN_IMAGE_KERNELS_INT8_ATTENTION_ONCE_
#define QWEN_IMAGE_KERNELS_INT8_ATTENTION_ONCE_
namespace qwen_image {

// One task: some queries of one head against all keys.
struct Int8AttentionTask {
  ConstView q;  // [the task's queries, head_dim]
  View out;     // the same
  int64_t kv_head;

  int64_t queries() const { return q.rows; }
};

}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

constexpr int64_t kCols = kInt8PanelCols;
constexpr int64_t kBlockGroups = kKeyBlock / kKeyGroup;
constexpr int64_t kMostDimPanels = 8;  // of a head that are multiplied at once
// Room for a number of each row of a tile, in whole vectors.
constexpr int64_t kRowRoom = 16;
static_assert(kInt8MaxTileRows <= kRowRoom && kRowRoom % kLanes == 0);

// Memory of a task. A tile has tile_rows queries.
struct Int8AttentionBuffers {
  int64_t tile_rows;
  int8_t* q;                 // [tiles][head_dim / 4][tile_rows][4]
  float *q_scales, *q_sums;  // [tiles][dim_groups][tile_rows]
  float* sums;               // [tiles][head_dim / kCols][tile_rows][kCols]: Σ 2^(logit - largest) · v
  float *largest, *total;    // [tiles][kRowRoom]: the largest logit so far, Σ 2^(logit - largest)
  float* logits;    // [kKeyBlock / kCols][tile_rows][kCols], in units of log2; before, a tile's queries
  int8_t* bytes;    // [tile_rows][head_dim or kKeyBlock]: rows before they are interleaved
  int8_t* weights;  // [kKeyBlock / 4][tile_rows][4]: less 128
  float *w_scales, *w_sums;  // [kBlockGroups][tile_rows]
  float* rescale;            // [kRowRoom]: what becomes of older sums

  Int8AttentionBuffers(int64_t tiles, const PackedAttention& packed) : tile_rows(packed.kernel().tile_rows) {
    const int64_t dim = packed.shape().head_dim, groups = packed.dim_groups();
    const int64_t sizes[] = {tiles * dim * tile_rows / 4,
                             tiles * groups * tile_rows,
                             tiles * groups * tile_rows,
                             tiles * dim * tile_rows,
                             tiles * kRowRoom,
                             tiles * kRowRoom,
                             std::max(dim, kKeyBlock) * tile_rows,
                             std::max(dim, kKeyBlock) * tile_rows / 4,
                             kKeyBlock * tile_rows / 4,
                             kBlockGroups * tile_rows,
                             kBlockGroups * tile_rows,
                             kRowRoom};
    void* const parts[] = {&q,      &q_scales, &q_sums,  &sums,     &largest, &total,
                           &logits, &bytes,    &weights, &w_scales, &w_sums,  &rescale};
    static_assert(std::size(sizes) == std::size(parts));
    int64_t floats = 0;
    for (const int64_t size : sizes) floats += RoundUp(size, 16);
    float* next = ThreadScratch(floats);
    for (size_t i = 0; i < std::size(sizes); ++i) {
      std::memcpy(parts[i], &next, sizeof(next));
      next += RoundUp(sizes[i], 16);
    }
  }
};

void Begin(const Int8AttentionTask& task, const PackedAttention& packed, const Int8AttentionBuffers& b) {
  const int64_t dim = packed.shape().head_dim, groups = packed.dim_groups();
  const int64_t tiles = CeilDiv(task.queries(), b.tile_rows);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * b.tile_rows, rows = std::min(b.tile_rows, task.queries() - first);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(task.q.row(first + r), dim, b.logits + r * dim);
    QuantizeShortRows(
        b.logits, rows, dim, packed.dim_group(),
        {b.bytes, b.q_scales + first * groups, b.q_sums + first * groups, static_cast<int>(b.tile_rows), 0});
    InterleaveFours(b.bytes, dim, rows, dim, b.tile_rows, b.q + first * dim);
  }
  std::fill_n(b.sums, tiles * dim * b.tile_rows, 0.0f);
  std::fill_n(b.total, tiles * kRowRoom, 0.0f);
  std::fill_n(b.largest, tiles * kRowRoom, -std::numeric_limits<float>::infinity());
}

// A tile of queries, its place, and the keys that it meets.
struct Meeting {
  int64_t kv_head, block, tile, rows;
};

void Logits(const PackedAttention& packed, const Int8AttentionBuffers& b, const Meeting& at) {
  const int64_t first = at.tile * b.tile_rows, groups = packed.dim_groups();
  const Int8Rows queries = {b.q + first * packed.shape().head_dim, b.q_scales + first * groups,
                            b.q_sums + first * groups};
  const int64_t padded = packed.PaddedKeysIn(at.block);
  Int8Panel panels[kKeyBlock / kCols];
  for (int64_t panel = 0; panel < padded / kCols; ++panel)
    panels[panel] = packed.Keys(at.kv_head, at.block, panel);
  packed.kernel().multiply({.x = queries,
                            .w = panels,
                            .panels = static_cast<int>(padded / kCols),
                            .rows = static_cast<int>(at.rows),
                            .groups = groups,
                            .group = packed.dim_group(),
                            .planes = 1,
                            .add = false,
                            .sums = b.logits});
  for (int64_t j = packed.KeysIn(at.block); j < padded; ++j) {  // what is no key
    float* const logit = b.logits + j / kCols * b.tile_rows * kCols + j % kCols;
    for (int64_t r = 0; r < at.rows; ++r) logit[r * kCols] = -std::numeric_limits<float>::infinity();
  }
}

// The keys of a group, as a tile's softmax looks at them.
struct KeyGroup {
  int64_t first, end;  // in the block

  // The logits of kLanes keys from `key` on.
  const float* Logits(const Int8AttentionBuffers& b, int64_t row, int64_t key) const {
    return b.logits + (key / kCols * b.tile_rows + row) * kCols + key % kCols;
  }
};

KeyGroup GroupOf(const PackedAttention& packed, int64_t block, int64_t group) {
  const int64_t first = group * kKeyGroup;
  return {first, std::min(first + kKeyGroup, packed.PaddedKeysIn(block))};
}

// The largest logit of each row.
void LargestOf(const KeyGroup& group, const Int8AttentionBuffers& b, int64_t rows,
               float* largest /*[kRowRoom]*/) {
  const F32 d;
  for (int64_t first = 0; first < rows; first += kLanes) {
    HWY_ALIGN Partial of_rows = {};
    for (int64_t r = first; r < std::min(rows, first + kLanes); ++r) {
      VF32 most = hn::Load(d, group.Logits(b, r, group.first));
      for (int64_t key = group.first + kLanes; key < group.end; key += kLanes)
        most = hn::Max(most, hn::Load(d, group.Logits(b, r, key)));
      hn::Store(most, d, of_rows[r - first]);
    }
    hn::Store(MaxEach(of_rows), d, largest + first);
  }
}

// 2^x + c, 2^x to 3e-6, far less than one of 255 steps, for x up to a few; below -126 it is as at -126.
HWY_INLINE VF32 RoughExp2Plus(VF32 x, VF32 c) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  x = hn::Max(x, hn::Set(d, -126.0f));
  const VF32 shift = hn::Set(d, 12582912.0f + 127.0f);  // as in Exp2NonPositive
  const VF32 rounded = hn::Add(x, shift);
  const VF32 f = hn::Sub(x, hn::Sub(rounded, shift));
  VF32 p = hn::MulAdd(f, hn::Set(d, 0.009582853f), hn::Set(d, 0.055906425f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.24024099f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.6931242f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.0f));
  return hn::MulAdd(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, rounded))), c);
}

// The weights of each row, the largest of them 255, less 128, and their sums.
void WeightsOf(const KeyGroup& group, const Int8AttentionBuffers& b, int64_t rows,
               const float* largest /*[kRowRoom]*/, float* sums /*[kRowRoom]*/) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint8_t, F32> d8;
  constexpr float kLog2Of255 = 7.9943533f;
  // Added to a number from 0 to 255, it leaves no bits behind the point, and the number less 128 in the
  // lowest ones.
  constexpr float kShift = 12582912.0f;
  const VF32 shift = hn::Set(d, kShift - 128.0f);
  // A weight's bits are the number behind those of `shift`: those are taken from the sum of all at once.
  const auto vectors = static_cast<uint32_t>((group.end - group.first) / kLanes);
  const auto none = hn::Set(du, 0u - vectors * std::bit_cast<uint32_t>(kShift - 128.0f));
  for (int64_t first = 0; first < rows; first += kLanes) {
    HWY_ALIGN Partial of_rows = {};
    for (int64_t r = first; r < std::min(rows, first + kLanes); ++r) {
      const VF32 offset = hn::Set(d, largest[r] - kLog2Of255);
      auto sum = none;
      for (int64_t key = group.first; key < group.end; key += kLanes) {
        const VF32 logit = hn::Load(d, group.Logits(b, r, key));
        const auto weight = hn::BitCast(du, RoughExp2Plus(hn::Sub(logit, offset), shift));
        sum = hn::Add(sum, weight);
        hn::StoreU(hn::TruncateTo(d8, weight), d8, reinterpret_cast<uint8_t*>(b.bytes + r * kKeyBlock + key));
      }
      hn::Store(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<F32>(), sum)), d, of_rows[r - first]);
    }
    hn::Store(SumEach(of_rows), d, sums + first);
  }
}

// The weights of a tile's rows for a block of keys, and the running softmax.
void Weights(const PackedAttention& packed, const Int8AttentionBuffers& b, const Meeting& at) {
  const F32 d;
  const int64_t groups = CeilDiv(packed.PaddedKeysIn(at.block), kKeyGroup);
  HWY_ALIGN float largest[kBlockGroups][kRowRoom], sums[kBlockGroups][kRowRoom],
      scales[kBlockGroups][kRowRoom];
  for (int64_t g = 0; g < groups; ++g) {
    const KeyGroup group = GroupOf(packed, at.block, g);
    LargestOf(group, b, at.rows, largest[g]);
    WeightsOf(group, b, at.rows, largest[g], sums[g]);
  }
  for (int64_t r = 0; r < at.rows; r += kLanes) {
    float* const so_far = b.largest + at.tile * kRowRoom + r;
    const VF32 before = hn::Load(d, so_far);
    VF32 now = before;
    for (int64_t g = 0; g < groups; ++g) {
      const VF32 of_group = hn::Load(d, largest[g] + r);
      now = hn::IfThenElse(hn::Gt(of_group, now), of_group, now);
    }
    hn::Store(now, d, so_far);
    const VF32 rescale = Exp2NonPositive(d, hn::Sub(before, now));
    hn::Store(rescale, d, b.rescale + r);
    float* const total = b.total + at.tile * kRowRoom + r;
    VF32 all = hn::Mul(hn::Load(d, total), rescale);
    for (int64_t g = 0; g < groups; ++g) {
      // NaN comes in by the scale of the query or of a key, whose logits are then all NaN.
      const VF32 scale =
          hn::Mul(Exp2NonPositive(d, hn::Sub(hn::Load(d, largest[g] + r), now)), hn::Set(d, 1.0f / 255));
      const VF32 sum = hn::Mul(hn::Load(d, sums[g] + r), scale);
      all = hn::Add(all, sum);
      hn::Store(scale, d, scales[g] + r);
      hn::Store(sum, d, sums[g] + r);
    }
    hn::Store(all, d, total);
  }
  for (int64_t g = 0; g < groups; ++g) {
    std::copy_n(scales[g], at.rows, b.w_scales + g * b.tile_rows);
    std::copy_n(sums[g], at.rows, b.w_sums + g * b.tile_rows);
  }
  InterleaveFours(b.bytes, kKeyBlock, at.rows, packed.PaddedKeysIn(at.block), b.tile_rows, b.weights);
}

// sums = sums · rescale + weights · values
void AddValues(const PackedAttention& packed, const Int8AttentionBuffers& b, const Meeting& at) {
  const F32 d;
  const auto rows = static_cast<int>(at.rows);
  const int64_t whole = packed.PaddedKeysIn(at.block) / kKeyGroup;
  const auto tail = static_cast<int>(packed.PaddedKeysIn(at.block) % kKeyGroup);
  const bool same = std::all_of(b.rescale, b.rescale + rows, [](float factor) { return factor == 1.0f; });
  const auto weights = [&](int64_t first_group) {
    const int64_t group = first_group * b.tile_rows;
    return Int8Rows{b.weights + group * kKeyGroup, b.w_scales + group, b.w_sums + group};
  };
  float* const sums = b.sums + at.tile * packed.dim_panels() * b.tile_rows * kCols;
  for (int64_t p = 0; !same && p < packed.dim_panels(); ++p) {
    for (int64_t i = 0; i < rows * kCols; i += kLanes) {
      float* const sum = sums + p * b.tile_rows * kCols + i;
      hn::Store(hn::Mul(hn::Load(d, sum), hn::Set(d, b.rescale[i / kCols])), d, sum);
    }
  }
  const auto multiply = [&](int64_t first_group, int64_t groups, int group) {
    Int8Panel panels[kMostDimPanels];
    for (int64_t first = 0; first < packed.dim_panels(); first += kMostDimPanels) {
      const int64_t count = std::min(kMostDimPanels, packed.dim_panels() - first);
      for (int64_t p = 0; p < count; ++p)
        panels[p] = packed.Values(at.kv_head, at.block, first + p, first_group);
      packed.kernel().multiply({.x = weights(first_group),
                                .w = panels,
                                .panels = static_cast<int>(count),
                                .rows = rows,
                                .groups = groups,
                                .group = group,
                                .planes = 1,
                                .add = true,
                                .sums = sums + first * b.tile_rows * kCols});
    }
  };
  if (whole > 0) multiply(0, whole, kKeyGroup);
  if (tail > 0) multiply(whole, 1, tail);
}

void RunInt8AttentionTask(const Int8AttentionTask& task, const PackedAttention& packed) {
  const int64_t dim = packed.shape().head_dim;
  const int64_t tiles = CeilDiv(task.queries(), packed.kernel().tile_rows);
  const Int8AttentionBuffers b(tiles, packed);
  Begin(task, packed, b);
  for (int64_t block = 0; block < packed.blocks(); ++block) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t rows = std::min(b.tile_rows, task.queries() - tile * b.tile_rows);
      const Meeting meeting = {task.kv_head, block, tile, rows};
      Logits(packed, b, meeting);
      Weights(packed, b, meeting);
      AddValues(packed, b, meeting);
    }
  }
  for (int64_t i = 0; i < task.queries(); ++i) {
    const int64_t tile = i / b.tile_rows, row = i % b.tile_rows;
    const float factor = 1.0f / b.total[tile * kRowRoom + row];
    const float* const from = b.sums + tile * dim * b.tile_rows + row * kCols;
    float* const to = task.out.row(i);
    for (int64_t c = 0; c < dim; ++c) to[c] = from[c / kCols * b.tile_rows * kCols + c % kCols] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

bool FitsInt8Attention(const AttentionShape& shape, int64_t queries, int64_t keys) {
  constexpr int64_t kFewQueries = 64, kFewKeys = 256;
  return ChosenInt8Kernel().fast_attention && !shape.causal && shape.head_dim % kInt8PanelCols == 0 &&
         queries >= kFewQueries && keys >= kFewKeys;
}

namespace {

HWY_EXPORT(RunInt8AttentionTask);

// All queries of all heads but some.
void RunTasks(ConstView q, View out, const PackedAttention& packed, ThreadPool& pool,
              const std::vector<bool>& skipped_heads) {
  const AttentionShape& shape = packed.shape();
  const int64_t task_queries = Int8AttentionTaskQueries(q.rows, shape.heads, pool.size());
  const int64_t parts = CeilDiv(q.rows, task_queries);
  ForTasks(parts * shape.heads, 2 * q.rows * packed.keys() * shape.heads * shape.head_dim, pool,
           [&](int64_t i) {
             const int64_t head = i / parts, col = head * shape.head_dim;
             if (skipped_heads[static_cast<size_t>(head)]) return;
             const int64_t first = i % parts * task_queries, queries = std::min(task_queries, q.rows - first);
             const Int8AttentionTask task{q.Rows(first, queries).Cols(col, shape.head_dim),
                                          out.Rows(first, queries).Cols(col, shape.head_dim),
                                          head / (shape.heads / shape.kv_heads)};
             HWY_DYNAMIC_DISPATCH(RunInt8AttentionTask)(task, packed);
           });
}

// Heads of keys and values, some of them, in fp32. Neighbours are one job.
void AttendExactly(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out,
                   ThreadPool& pool, const std::vector<bool>& heads) {
  const int64_t dim = shape.head_dim, together = shape.heads / shape.kv_heads;
  const auto asked = [&](int64_t kv_head) {
    const auto first = heads.begin() + kv_head * together;
    return std::find(first, first + together, true) != first + together;
  };
  for (int64_t first = 0, end = 0; first < shape.kv_heads; first = end + 1) {
    for (end = first; end < shape.kv_heads && asked(end);) ++end;
    if (end == first) continue;
    const int64_t count = end - first, col = first * together * dim, cols = count * together * dim;
    Attention(q.Cols(col, cols), k.Cols(first * dim, count * dim), v.Cols(first * dim, count * dim),
              {count * together, count, dim, false}, out.Cols(col, cols), pool);
  }
}

std::vector<double> ErrorsOf(ConstView q, ConstView k, ConstView v, const PackedAttention& packed,
                             ThreadPool& pool) {
  const AttentionShape& shape = packed.shape();
  const Tensor samples = SampleQueries(q, k, shape, packed.dim_group(), pool);
  Tensor out({samples.dim(0), samples.dim(1)});
  const ConstView sampled(samples.data(), samples.dim(0), samples.dim(1));
  const View to(out.data(), out.dim(0), out.dim(1));
  RunTasks(sampled, to, packed, pool, std::vector<bool>(static_cast<size_t>(shape.heads)));
  return AttentionErrors(sampled, k, v, shape, to, pool);
}

}  // namespace

void Int8Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out,
                   ThreadPool& pool, double limit) {
  const PackedAttention packed(k, v, shape, ChosenInt8Kernel(), pool);
  std::vector<bool> coarse;
  // NaN is too far, too: there fp32 has a number.
  for (const double error : ErrorsOf(q, k, v, packed, pool)) coarse.push_back(!(error <= limit));
  RunTasks(q, out, packed, pool, coarse);
  AttendExactly(q, k, v, shape, out, pool, coarse);
}

std::vector<double> Int8AttentionErrors(ConstView q, ConstView k, ConstView v, const AttentionShape& shape,
                                        ThreadPool& pool) {
  const PackedAttention packed(k, v, shape, ChosenInt8Kernel(), pool);
  return ErrorsOf(q, k, v, packed, pool);
}

}  // namespace qwen_image
#endif

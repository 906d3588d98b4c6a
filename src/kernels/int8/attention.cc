#include "kernels/int8/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/int8/attention_error.h"
#include "kernels/int8/packed_attention.h"
#include "kernels/int8/tile.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/int8/fours-inl.h"
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
constexpr float kLargest = 127.0f;  // of a query's and a key's integers
constexpr int32_t kMiddle = 128;    // of 8 unsigned bits
constexpr int64_t kDotPanels = 4;   // panels of keys whose dot products are in flight at once

// Memory of a task. A tile has tile_rows queries.
struct Int8AttentionBuffers {
  int64_t tile_rows;
  int8_t* q;               // [tiles][head_dim / 4][tile_rows][4]
  int32_t* q_start;        // [tiles][groups][tile_rows]
  float* q_scales;         // [tiles][tile_rows]: in units of log2
  float* sums;             // [tiles][head_dim / kCols][tile_rows][kCols]: Σ 2^(logit - largest) · v
  float *largest, *total;  // [tiles][tile_rows]: the largest logit so far, Σ 2^(logit - largest)
  int32_t* dots;           // [kDotPanels][groups][tile_rows][kCols], or [head_dim / kCols][tile_rows][kCols]
  float* logits;           // [kKeyBlock / kCols][tile_rows][kCols], without the query's scale
  int8_t* weights;         // [kKeyBlock / 4][tile_rows][4]
  int32_t* weights_start;  // [tile_rows]
  float* of_rows;  // [3][tile_rows]: the block's weights' scale, their sum, what becomes of older sums

  Int8AttentionBuffers(int64_t tiles, const PackedAttention& packed) : tile_rows(packed.kernel().tile_rows) {
    const int64_t dim = packed.shape().head_dim, groups = packed.key_groups();
    const int64_t sizes[] = {tiles * dim * tile_rows / 4,
                             tiles * groups * tile_rows,
                             tiles * tile_rows,
                             tiles * dim * tile_rows,
                             tiles * tile_rows,
                             tiles * tile_rows,
                             std::max(kDotPanels * groups * kCols, dim) * tile_rows,
                             kKeyBlock * tile_rows,
                             kKeyBlock * tile_rows / 4,
                             tile_rows,
                             3 * tile_rows};
    void* const parts[] = {&q,    &q_start, &q_scales, &sums,          &largest, &total,
                           &dots, &logits,  &weights,  &weights_start, &of_rows};
    static_assert(std::size(sizes) == std::size(parts));
    int64_t floats = 0;
    for (const int64_t size : sizes) floats += RoundUp(size, 16);
    float* next = ThreadScratch(floats);
    for (size_t i = 0; i < std::size(sizes); ++i) {
      std::memcpy(parts[i], &next, sizeof(next));
      next += RoundUp(sizes[i], 16);
    }
  }
  float* block_scales() const { return of_rows; }
  float* block_sums() const { return of_rows + tile_rows; }
  float* rescale() const { return of_rows + 2 * tile_rows; }
};

// Sums of some tokens' keys, [cols].
void SumRows(ConstView x, float* sums) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill_n(sums, x.cols, 0.0f);
  for (int64_t row = 0; row < x.rows; ++row) {
    const float* const from = x.row(row);
    int64_t c = 0;
    for (; c + lanes <= x.cols; c += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, from + c)), d, sums + c);
    for (; c < x.cols; ++c) sums[c] += from[c];
  }
}

// A row, or a group of one, in integers with one scale, written as four bytes here and four `stride` bytes
// on. Returns the scale: NaN where x has NaN or infinity.
HWY_INLINE float RoundRow(const float* x, int64_t count, int8_t* to, int64_t stride) {
  const F32 d;
  const hn::Rebind<int8_t, F32> d8;
  constexpr int64_t kPiece = 16;
  VF32 most = hn::Zero(d), non_finite = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF32 v = hn::LoadU(d, x + i);
    most = hn::Max(most, hn::Abs(v));
    non_finite = hn::Add(non_finite, hn::Sub(v, v));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  // Below this the inverse would overflow; such values are zero beside anything else.
  const bool tiny = largest < kLargest / std::numeric_limits<float>::max();
  const VF32 inverse = hn::Set(d, tiny ? 0.0f : kLargest / largest);
  for (int64_t i = 0; i < count; i += kPiece) {
    HWY_ALIGN int8_t a[kPiece];
    for (int64_t k = 0; k < kPiece; k += kLanes)
      hn::Store(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i + k), inverse))), d8, a + k);
    for (int64_t k = 0; k < kPiece; k += 4) std::memcpy(to + (i + k) / 4 * stride, a + k, 4);
  }
  return (tiny ? 0.0f : largest / kLargest) + hn::GetLane(hn::SumOfLanes(d, non_finite));
}

void PackKeys(ConstView k /*[keys, head_dim]*/, const float* mean, int64_t kv_head, int64_t panel,
              const PackedAttention& packed) {
  const PackedAttention::KeyPanel to = packed.Keys(kv_head, panel);
  const int64_t first = panel * kCols, dim = packed.shape().head_dim, group = packed.key_group();
  auto* const a = reinterpret_cast<int8_t*>(to.q);
  float* const centred = ThreadScratch(dim);
  for (int64_t i = 0; i < kCols; ++i) {
    const bool there = first + i < k.rows;
    const float* const key = k.row(there ? first + i : k.rows - 1);
    for (int64_t c = 0; c < dim; ++c) centred[c] = there ? key[c] - mean[c] : 0.0f;
    for (int64_t g = 0; g < dim / group; ++g)
      to.scales[g * kCols + i] =
          RoundRow(centred + g * group, group, a + g * group * kCols + 4 * i, 4 * kCols);
  }
  if (packed.signed_bytes()) return;
  for (int64_t i = 0; i < dim * kCols; ++i) to.q[i] ^= 0x80;  // + 128, see QuantizeQueries
}

// A block of keys, kCols numbers of their values.
void PackValues(ConstView v /*[keys, head_dim]*/, int64_t kv_head, int64_t block, int64_t panel,
                const PackedAttention& packed) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const PackedAttention::ValuePanel to = packed.Values(kv_head, block, panel);
  const int64_t keys = packed.KeysIn(block);
  for (int64_t c = 0; c < kCols; c += kLanes) {
    const auto row = [&](int64_t j)
                         HWY_ATTR { return hn::LoadU(d, v.row(block * kKeyBlock + j) + panel * kCols + c); };
    VF32 least = row(0), most = least, non_finite = hn::Zero(d);
    for (int64_t j = 0; j < keys; ++j) {
      const VF32 x = row(j);
      least = hn::Min(least, x);
      most = hn::Max(most, x);
      non_finite = hn::Add(non_finite, hn::Sub(x, x));
    }
    const VF32 scale = hn::Mul(hn::Sub(most, least), hn::Set(d, 1.0f / 255));
    const VF32 inverse =
        hn::IfThenElseZero(hn::Gt(scale, hn::Set(d, 1e-36f)), hn::Div(hn::Set(d, 1.0f), scale));
    hn::Store(hn::Add(scale, non_finite), d, to.scales + c);
    hn::Store(hn::Add(least, non_finite), d, to.least + c);
    auto sum = hn::Zero(di);
    const auto flip = hn::Set(di, static_cast<int32_t>(packed.signed_bytes() ? 0x80808080u : 0u));
    for (int64_t j = 0; j < packed.PaddedKeysIn(block); j += 4) {
      const auto byte = [&](int64_t i) HWY_ATTR {
        if (j + i >= keys) return hn::Zero(di);
        const auto q = hn::NearestInt(hn::Mul(hn::Sub(row(j + i), least), inverse));  // 0…255
        sum = hn::Add(sum, q);
        return q;
      };
      const auto low = hn::Or(byte(0), hn::ShiftLeft<8>(byte(1)));
      const auto high = hn::Or(hn::ShiftLeft<16>(byte(2)), hn::ShiftLeft<24>(byte(3)));
      hn::StoreU(hn::Xor(hn::Or(low, high), flip), di,
                 reinterpret_cast<int32_t*>(to.q + (j * kCols + 4 * c)));
    }
    hn::Store(hn::ShiftLeft<7>(sum), di, to.middle + c);
  }
}

// 2^x to 3e-6, far less than one of 255 steps, for x up to a few; below -126 it is as at -126.
HWY_INLINE VF32 RoughExp2(VF32 x) {
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
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, rounded))));
}

void QuantizeQueries(const Int8AttentionTask& task, const PackedAttention& packed,
                     const Int8AttentionBuffers& b) {
  const int64_t dim = packed.shape().head_dim, group = packed.key_group(), groups = packed.key_groups();
  const int64_t tiles = CeilDiv(task.queries(), b.tile_rows);
  constexpr double kLog2E = 1.4426950408889634;
  const auto to_log2 = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(dim)));
  std::memset(b.q + (tiles - 1) * dim * b.tile_rows, 0, static_cast<size_t>(dim * b.tile_rows));
  for (int64_t i = 0; i < task.queries(); ++i) {
    int8_t* const to = b.q + i / b.tile_rows * dim * b.tile_rows + 4 * (i % b.tile_rows);
    b.q_scales[i] = to_log2 * RoundRow(task.q.row(i), dim, to, 4 * b.tile_rows);
  }
  // Unsigned keys are too large by 128.
  std::fill_n(b.q_start, tiles * groups * b.tile_rows, 0);
  for (int64_t k = 0; !packed.signed_bytes() && k < tiles * dim / 4; ++k) {
    const int8_t* const fours = b.q + k * 4 * b.tile_rows;
    int32_t* const start = b.q_start + k * 4 / group * b.tile_rows;
    for (int64_t r = 0; r < b.tile_rows; ++r)
      start[r] -= kMiddle * (fours[4 * r] + fours[4 * r + 1] + fours[4 * r + 2] + fours[4 * r + 3]);
  }
  std::fill_n(b.sums, tiles * dim * b.tile_rows, 0.0f);
  std::fill_n(b.total, tiles * b.tile_rows, 0.0f);
  std::fill_n(b.largest, tiles * b.tile_rows, -std::numeric_limits<float>::infinity());
}

// logits[panel][row] = Σ_groups key's scale · dot product, for a tile of queries and a block of keys.
void Logits(const PackedAttention& packed, const Int8AttentionBuffers& b, int64_t kv_head, int64_t block,
            int64_t tile, int64_t rows) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const int64_t dim = packed.shape().head_dim, groups = packed.key_groups();
  const int64_t first = block * kKeyBlock / kCols, panels = packed.PaddedKeysIn(block) / kCols;
  for (int64_t p = 0; p < panels; p += kDotPanels) {
    const int64_t some = std::min(kDotPanels, panels - p);
    packed.kernel().dot({.a = b.q + tile * dim * b.tile_rows,
                         .start = b.q_start + tile * groups * b.tile_rows,
                         .q = packed.Keys(kv_head, first + p).q,
                         .panel_bytes = packed.key_panel_bytes(),
                         .panels = some,
                         .groups = groups,
                         .group = packed.key_group(),
                         .rows = static_cast<int>(rows),
                         .sums = b.dots});
    for (int64_t i = 0; i < some; ++i) {
      const float* const scales = packed.Keys(kv_head, first + p + i).scales;
      const int32_t* const dots = b.dots + i * groups * b.tile_rows * kCols;
      float* const to = b.logits + (p + i) * b.tile_rows * kCols;
      for (int64_t c = 0; c < kCols; c += kLanes) {
        for (int64_t r = 0; r < rows; ++r) {
          const auto dot = [&](int64_t g) HWY_ATTR {
            return hn::ConvertTo(d, hn::Load(di, dots + (g * b.tile_rows + r) * kCols + c));
          };
          VF32 logit = hn::Mul(dot(0), hn::Load(d, scales + c));
          for (int64_t g = 1; g < groups; ++g)
            logit = hn::MulAdd(dot(g), hn::Load(d, scales + g * kCols + c), logit);
          hn::Store(logit, d, to + r * kCols + c);
        }
      }
    }
  }
  for (int64_t j = packed.KeysIn(block); j < panels * kCols; ++j) {  // what is no key
    float* const at = b.logits + j / kCols * b.tile_rows * kCols + j % kCols;
    for (int64_t r = 0; r < rows; ++r) at[r * kCols] = -std::numeric_limits<float>::infinity();
  }
}

// The block's logits of a row as weights of 8 bits, the largest of them 255. Returns that one's logit, in
// units of log2.
HWY_INLINE float WeightsOfRow(const Int8AttentionBuffers& b, int64_t r, int64_t keys, float scale,
                              int8_t* bytes /*[keys]*/) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<int8_t, F32> d8;
  const auto at = [&](int64_t j) { return b.logits + (j / kCols * b.tile_rows + r) * kCols + j % kCols; };
  VF32 most = hn::Load(d, at(0));
  for (int64_t j = kLanes; j < keys; j += kLanes) most = hn::Max(most, hn::Load(d, at(j)));
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most)) * scale;
  constexpr float kLog2Of255 = 7.9943533f;
  const VF32 factor = hn::Set(d, scale), offset = hn::Set(d, largest - kLog2Of255);
  const auto middle = hn::Set(di, kMiddle);
  auto sum = hn::Zero(di);
  for (int64_t j = 0; j < keys; j += kLanes) {
    const auto weight = hn::NearestInt(RoughExp2(hn::MulSub(hn::Load(d, at(j)), factor, offset)));
    sum = hn::Add(sum, weight);
    hn::Store(hn::DemoteTo(d8, hn::Sub(weight, middle)), d8, bytes + j);
  }
  b.block_sums()[r] = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
  return largest;
}

// The weights of a tile, and the running softmax of its rows.
void Weights(const PackedAttention& packed, const Int8AttentionBuffers& b, int64_t block, int64_t tile,
             int64_t rows) {
  const hn::CappedTag<float, 1> one;
  const int64_t padded = packed.PaddedKeysIn(block);
  HWY_ALIGN int8_t bytes[kInt8MaxTileRows * kKeyBlock];
  const auto exp2 = [&](float x) HWY_ATTR { return hn::GetLane(Exp2NonPositive(one, hn::Set(one, x))); };
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = tile * b.tile_rows + r;
    const float largest = WeightsOfRow(b, r, padded, b.q_scales[row], bytes + r * kKeyBlock);
    const float before = b.largest[row], now = largest > before ? largest : before;
    // NaN comes in by the scale of the query or of a key, whose logits are then all NaN.
    b.block_scales()[r] = exp2(largest - now) * (1.0f / 255);
    b.rescale()[r] = exp2(before - now);
    b.largest[row] = now;
    // Σ weight · q = Σ (weight - 128) · q + 128 · Σ q, and signed q are too small by 128.
    const auto sum = static_cast<int32_t>(b.block_sums()[r] - static_cast<float>(kMiddle * padded));
    b.weights_start[r] = packed.signed_bytes() ? kMiddle * sum : 0;
    b.block_sums()[r] *= b.block_scales()[r];
    b.total[row] = b.total[row] * b.rescale()[r] + b.block_sums()[r];
  }
  InterleaveFours(bytes, kKeyBlock, rows, padded, b.tile_rows, b.weights);
}

// sums = sums · rescale + weights · values, for a tile of queries and a block of keys.
void AddValues(const PackedAttention& packed, const Int8AttentionBuffers& b, int64_t kv_head, int64_t block,
               int64_t tile, int64_t rows) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const int64_t panels = packed.dim_panels();
  packed.kernel().dot({.a = b.weights,
                       .start = b.weights_start,
                       .q = packed.Values(kv_head, block, 0).q,
                       .panel_bytes = packed.value_panel_bytes(block),
                       .panels = panels,
                       .groups = 1,
                       .group = packed.PaddedKeysIn(block),
                       .rows = static_cast<int>(rows),
                       .sums = b.dots});
  for (int64_t p = 0; p < panels; ++p) {
    const PackedAttention::ValuePanel values = packed.Values(kv_head, block, p);
    const int32_t* const dots = b.dots + p * b.tile_rows * kCols;
    float* const sums = b.sums + (tile * panels + p) * b.tile_rows * kCols;
    for (int64_t c = 0; c < kCols; c += kLanes) {
      const VF32 scale = hn::Load(d, values.scales + c), least = hn::Load(d, values.least + c);
      const auto middle = hn::Load(di, values.middle + c);
      for (int64_t r = 0; r < rows; ++r) {
        const VF32 dot = hn::ConvertTo(d, hn::Add(hn::Load(di, dots + r * kCols + c), middle));
        const VF32 both = hn::Mul(scale, hn::Set(d, b.block_scales()[r]));
        VF32 sum = hn::Mul(hn::Load(d, sums + r * kCols + c), hn::Set(d, b.rescale()[r]));
        sum = hn::MulAdd(least, hn::Set(d, b.block_sums()[r]), sum);
        hn::Store(hn::MulAdd(dot, both, sum), d, sums + r * kCols + c);
      }
    }
  }
}

void RunInt8AttentionTask(const Int8AttentionTask& task, const PackedAttention& packed) {
  const int64_t dim = packed.shape().head_dim;
  const int64_t tiles = CeilDiv(task.queries(), packed.kernel().tile_rows);
  const Int8AttentionBuffers b(tiles, packed);
  QuantizeQueries(task, packed, b);
  for (int64_t block = 0; block < packed.blocks(); ++block) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t rows = std::min(b.tile_rows, task.queries() - tile * b.tile_rows);
      Logits(packed, b, task.kv_head, block, tile, rows);
      Weights(packed, b, block, tile, rows);
      AddValues(packed, b, task.kv_head, block, tile, rows);
    }
  }
  for (int64_t i = 0; i < task.queries(); ++i) {
    const float factor = 1.0f / b.total[i];
    const float* const from = b.sums + i / b.tile_rows * dim * b.tile_rows + i % b.tile_rows * kCols;
    float* const to = task.out.row(i);
    for (int64_t c = 0; c < dim; ++c) to[c] = from[c / kCols * b.tile_rows * kCols + c % kCols] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {
namespace {

HWY_EXPORT(SumRows);
HWY_EXPORT(PackKeys);
HWY_EXPORT(PackValues);
HWY_EXPORT(RunInt8AttentionTask);

// The mean over all tokens, [cols]. Summed over fixed blocks of tokens, the blocks in their order: a machine
// that has some of the blocks gets the same.
std::vector<float> MeanOfRows(ConstView x, ThreadPool& pool) {
  constexpr int64_t kBlock = 64;
  const int64_t blocks = CeilDiv(x.rows, kBlock);
  Tensor partial({blocks, x.cols});
  ForTasks(blocks, x.rows * x.cols, pool, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(SumRows)(x.Rows(i * kBlock, std::min(kBlock, x.rows - i * kBlock)), partial.row(i));
  });
  std::vector<float> mean(static_cast<size_t>(x.cols));
  for (int64_t c = 0; c < x.cols; ++c) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sum += static_cast<double>(partial.row(i)[c]);
    mean[static_cast<size_t>(c)] = static_cast<float>(sum / static_cast<double>(x.rows));
  }
  return mean;
}

void Pack(ConstView k, ConstView v, const PackedAttention& packed, ThreadPool& pool) {
  const AttentionShape& shape = packed.shape();
  const std::vector<float> mean = MeanOfRows(k, pool);
  constexpr int64_t kKeyPanels = kKeyBlock / kInt8PanelCols;  // of a block
  ForTasks(shape.kv_heads * packed.blocks(), 2 * k.rows * k.cols, pool, [&](int64_t i) {
    const int64_t head = i / packed.blocks(), block = i % packed.blocks(), col = head * shape.head_dim;
    const int64_t end = std::min((block + 1) * kKeyPanels, packed.key_panels());
    for (int64_t panel = block * kKeyPanels; panel < end; ++panel)
      HWY_DYNAMIC_DISPATCH(PackKeys)(k.Cols(col, shape.head_dim), mean.data() + col, head, panel, packed);
    for (int64_t panel = 0; panel < packed.dim_panels(); ++panel)
      HWY_DYNAMIC_DISPATCH(PackValues)(v.Cols(col, shape.head_dim), head, block, panel, packed);
  });
}

}  // namespace

bool FitsInt8Attention(const AttentionShape& shape, int64_t queries, int64_t keys) {
  constexpr int64_t kFewQueries = 64, kFewKeys = 256;
  return !shape.causal && shape.head_dim % kInt8PanelCols == 0 && queries >= kFewQueries &&
         keys >= kFewKeys && ChosenInt8Kernel().dot != nullptr;
}

namespace {

// All queries of all heads but some.
void RunTasks(ConstView q, View out, const PackedAttention& packed, ThreadPool& pool,
              const std::vector<bool>& skipped_heads) {
  const AttentionShape& shape = packed.shape();
  // A multiple of all kernels' rows of a tile. Sums of 72 KB at head_dim 128 leave L2 to the keys and values.
  constexpr int64_t kTaskQueries = 144;
  const int64_t parts = CeilDiv(q.rows, kTaskQueries);
  ForTasks(parts * shape.heads, 2 * q.rows * packed.keys() * shape.heads * shape.head_dim, pool,
           [&](int64_t i) {
             const int64_t head = i / parts, col = head * shape.head_dim;
             if (skipped_heads[static_cast<size_t>(head)]) return;
             const int64_t first = i % parts * kTaskQueries, queries = std::min(kTaskQueries, q.rows - first);
             const Int8AttentionTask task{q.Rows(first, queries).Cols(col, shape.head_dim),
                                          out.Rows(first, queries).Cols(col, shape.head_dim),
                                          head / (shape.heads / shape.kv_heads)};
             HWY_DYNAMIC_DISPATCH(RunInt8AttentionTask)(task, packed);
           });
}

std::vector<double> ErrorsOf(ConstView q, ConstView k, ConstView v, const PackedAttention& packed,
                             ThreadPool& pool) {
  const AttentionShape& shape = packed.shape();
  const Tensor samples = SampleQueries(q);
  Tensor out({samples.dim(0), samples.dim(1)});
  const ConstView sampled(samples.data(), samples.dim(0), samples.dim(1));
  const View to(out.data(), out.dim(0), out.dim(1));
  RunTasks(sampled, to, packed, pool, std::vector<bool>(static_cast<size_t>(shape.heads)));
  return AttentionErrors(sampled, k, v, shape, to, pool);
}

}  // namespace

void Int8Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out,
                   ThreadPool& pool, double limit) {
  const PackedAttention packed(k.rows, shape, ChosenInt8Kernel());
  Pack(k, v, packed, pool);
  std::vector<bool> coarse;
  for (const double error : ErrorsOf(q, k, v, packed, pool)) coarse.push_back(error > limit);
  RunTasks(q, out, packed, pool, coarse);
  for (int64_t head = 0; head < shape.heads; ++head) {
    if (!coarse[static_cast<size_t>(head)]) continue;
    const int64_t dim = shape.head_dim, kv_col = head / (shape.heads / shape.kv_heads) * dim;
    Attention(q.Cols(head * dim, dim), k.Cols(kv_col, dim), v.Cols(kv_col, dim), {1, 1, dim, false},
              out.Cols(head * dim, dim), pool);
  }
}

std::vector<double> Int8AttentionErrors(ConstView q, ConstView k, ConstView v, const AttentionShape& shape,
                                        ThreadPool& pool) {
  const PackedAttention packed(k.rows, shape, ChosenInt8Kernel());
  Pack(k, v, packed, pool);
  return ErrorsOf(q, k, v, packed, pool);
}

}  // namespace qwen_image
#endif

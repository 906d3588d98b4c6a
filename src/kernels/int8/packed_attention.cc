#include "kernels/int8/packed_attention.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/int8/interleave.h"
#include "kernels/int8/quantize.h"

#ifndef QWEN_IMAGE_KERNELS_INT8_PACKED_ATTENTION_ONCE_
#define QWEN_IMAGE_KERNELS_INT8_PACKED_ATTENTION_ONCE_
namespace qwen_image {

// Where the values of a group of keys go, kInt8PanelCols numbers of a head.
struct ValueGroup {
  uint8_t* q;     // [keys / 4][kInt8PanelCols][4]
  float* scales;  // these three are [kInt8PanelCols]
  float* biases;
  int32_t* starts;
  bool signed_bytes;
  int64_t padded_keys;
};

}  // namespace qwen_image
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/packed_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

// Sums of some tokens' keys, [cols].
void SumRows(ConstView x, float* sums) {
  const F32 d;
  std::fill_n(sums, x.cols, 0.0f);
  for (int64_t row = 0; row < x.rows; ++row) {
    const float* const from = x.row(row);
    int64_t c = 0;
    for (; c + kLanes <= x.cols; c += kLanes)
      hn::StoreU(hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, from + c)), d, sums + c);
    for (; c < x.cols; ++c) sums[c] += from[c];
  }
}

// v is [keys of the group, kInt8PanelCols]: v = scale · q + least with q from 0 to 255.
void PackValueGroup(ConstView v, const ValueGroup& to) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  for (int64_t c = 0; c < kInt8PanelCols; c += kLanes) {
    const auto row = [&](int64_t j) HWY_ATTR { return hn::LoadU(d, v.row(j) + c); };
    VF32 least = row(0), most = least, non_finite = hn::Zero(d);
    for (int64_t j = 0; j < v.rows; ++j) {
      const VF32 x = row(j);
      least = hn::Min(least, x);
      most = hn::Max(most, x);
      non_finite = hn::Add(non_finite, hn::Sub(x, x));
    }
    const VF32 scale = hn::Mul(hn::Sub(most, least), hn::Set(d, 1.0f / 255));
    const VF32 inverse =
        hn::IfThenElseZero(hn::Gt(scale, hn::Set(d, 1e-36f)), hn::Div(hn::Set(d, 1.0f), scale));
    auto sum = hn::Zero(di);
    for (int64_t j = 0; j < to.padded_keys; j += 4) {
      const auto byte = [&](int64_t i) HWY_ATTR {
        if (j + i >= v.rows) return hn::Zero(di);
        const auto q = hn::NearestInt(hn::Mul(hn::Sub(row(j + i), least), inverse));
        sum = hn::Add(sum, q);
        return q;
      };
      const auto low = hn::Or(byte(0), hn::ShiftLeft<8>(byte(1)));
      const auto four = hn::Or(low, hn::Or(hn::ShiftLeft<16>(byte(2)), hn::ShiftLeft<24>(byte(3))));
      const auto flip = hn::Set(di, static_cast<int32_t>(to.signed_bytes ? 0x80808080u : 0u));
      hn::StoreU(hn::Xor(four, flip), di, reinterpret_cast<int32_t*>(to.q + j * kInt8PanelCols + 4 * c));
    }
    // Signed q are too small by 128, of which the smallest value makes up for. A weight is too small by 128
    // as well, so the sums of products begin with 128 · Σ q.
    VF32 bias = least;
    if (to.signed_bytes) {
      bias = hn::MulAdd(hn::Set(d, 128.0f), scale, least);
      sum = hn::Sub(sum, hn::Set(di, static_cast<int32_t>(128 * to.padded_keys)));
    }
    hn::StoreU(hn::Add(scale, non_finite), d, to.scales + c);
    hn::StoreU(hn::Add(bias, non_finite), d, to.biases + c);
    hn::StoreU(hn::ShiftLeft<7>(sum), di, to.starts + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {
namespace {

HWY_EXPORT(SumRows);
HWY_EXPORT(PackValueGroup);

constexpr int64_t kBlockPanels = kKeyBlock / kInt8PanelCols;
constexpr int64_t kBlockGroups = kKeyBlock / kKeyGroup;

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

int64_t PaddedToGroups(int64_t keys) {
  const int64_t whole = keys / kKeyGroup * kKeyGroup, rest = keys - whole;
  for (const int64_t tail : {int64_t{0}, kKeyGroup / 4, kKeyGroup / 2})
    if (rest <= tail) return whole + tail;
  return whole + kKeyGroup;
}

}  // namespace

PackedAttention::PackedAttention(ConstView k, ConstView v, const AttentionShape& shape,
                                 const Int8Kernel& kernel, ThreadPool& pool)
    : shape_(shape),
      kernel_(kernel),
      keys_(k.rows),
      dim_group_(shape.head_dim % 64 == 0   ? 64
                 : shape.head_dim % 32 == 0 ? 32
                                            : 16),
      memory_(shape.kv_heads * (padded_keys() * (shape.head_dim / 2 + 2 * dim_groups()) +
                                3 * blocks() * kBlockGroups * shape.head_dim)) {
  float* next = memory_.data();
  const auto take = [&](int64_t floats) {
    float* const part = next;
    next += shape_.kv_heads * floats;
    return part;
  };
  const int64_t bytes = padded_keys() * shape.head_dim;
  key_q_ = reinterpret_cast<uint8_t*>(take(bytes / 4));
  value_q_ = reinterpret_cast<uint8_t*>(take(bytes / 4));
  key_scales_ = take(padded_keys() * dim_groups());
  key_biases_ = take(padded_keys() * dim_groups());
  value_scales_ = take(blocks() * kBlockGroups * shape.head_dim);
  value_biases_ = take(blocks() * kBlockGroups * shape.head_dim);
  value_starts_ = reinterpret_cast<int32_t*>(take(blocks() * kBlockGroups * shape.head_dim));

  const std::vector<float> mean = MeanOfRows(k, pool);
  ForTasks(shape.kv_heads * blocks(), 2 * k.rows * k.cols, pool, [&](int64_t i) {
    const int64_t head = i / blocks(), block = i % blocks(), col = head * shape.head_dim;
    for (int64_t panel = 0; panel < PaddedKeysIn(block) / kInt8PanelCols; ++panel)
      PackKeys(k.Cols(col, shape.head_dim), mean.data() + col, block * kKeyBlock + panel * kInt8PanelCols,
               KeyMemory(head, block, panel));
    for (int64_t panel = 0; panel < dim_panels(); ++panel)
      PackValues(v.Cols(col + panel * kInt8PanelCols, kInt8PanelCols), block,
                 ValueMemory(head, block, panel));
  });
}

int64_t PackedAttention::PaddedKeysIn(int64_t block) const { return PaddedToGroups(KeysIn(block)); }

PackedAttention::PanelMemory PackedAttention::KeyMemory(int64_t kv_head, int64_t block, int64_t panel) const {
  const int64_t at = kv_head * padded_keys() / kInt8PanelCols + block * kBlockPanels + panel;
  const int64_t panel_bytes = shape_.head_dim * kInt8PanelCols, scales = at * dim_groups() * kInt8PanelCols;
  return {key_q_ + at * panel_bytes, key_scales_ + scales, key_biases_ + scales, nullptr};
}

// All panels of a block lie together.
PackedAttention::PanelMemory PackedAttention::ValueMemory(int64_t kv_head, int64_t block,
                                                          int64_t dim_panel) const {
  const int64_t first = (kv_head * padded_keys() + block * kKeyBlock) * shape_.head_dim;
  const int64_t panel_bytes = PaddedKeysIn(block) * kInt8PanelCols;
  const int64_t scales =
      ((kv_head * blocks() + block) * dim_panels() + dim_panel) * kBlockGroups * kInt8PanelCols;
  return {value_q_ + first + dim_panel * panel_bytes, value_scales_ + scales, value_biases_ + scales,
          value_starts_ + scales};
}

Int8Panel PackedAttention::Keys(int64_t kv_head, int64_t block, int64_t panel) const {
  const PanelMemory m = KeyMemory(kv_head, block, panel);
  return {m.q, m.scales, m.biases, 0};
}

Int8Panel PackedAttention::Values(int64_t kv_head, int64_t block, int64_t dim_panel,
                                  int64_t first_group) const {
  const PanelMemory m = ValueMemory(kv_head, block, dim_panel);
  const int64_t scales = first_group * kInt8PanelCols;
  return {m.q + scales * kKeyGroup, m.scales + scales, m.biases + scales, 0, m.starts + scales};
}

void PackedAttention::PackKeys(ConstView k, const float* mean, int64_t first, const PanelMemory& to) const {
  const int64_t dim = k.cols, there = std::min<int64_t>(kInt8PanelCols, k.rows - first);
  float* const centred = ThreadScratch(kInt8PanelCols * (dim + dim_groups() + dim / 4));
  float* const sums = centred + kInt8PanelCols * dim;
  auto* const bytes = reinterpret_cast<int8_t*>(sums + kInt8PanelCols * dim_groups());
  for (int64_t i = 0; i < there; ++i) {
    const float* const key = k.row(first + i);
    for (int64_t c = 0; c < dim; ++c) centred[i * dim + c] = key[c] - mean[c];
  }
  std::fill(centred + std::max<int64_t>(there, 0) * dim, centred + kInt8PanelCols * dim, 0.0f);
  QuantizeShortRows(centred, kInt8PanelCols, dim, dim_group_, {bytes, to.scales, sums, kInt8PanelCols, 0});
  PanelRows rows = {.rows = {}, .block_depth = dim, .block_bytes = dim};
  for (int i = 0; i < kInt8PanelCols; ++i) rows.rows[i] = reinterpret_cast<const uint8_t*>(bytes + i * dim);
  InterleaveBytes(rows, dim, signed_bytes() ? 0 : 0x80, to.q, nullptr);
  const auto to_log2 = static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(dim)));
  const float too_large = signed_bytes() ? 0.0f : 128.0f;  // unsigned integers
  for (int64_t i = 0; i < dim_groups() * kInt8PanelCols; ++i) {
    to.scales[i] *= to_log2;
    to.biases[i] = -too_large * to.scales[i];
  }
}

void PackedAttention::PackValues(ConstView v, int64_t block, const PanelMemory& to) const {
  const int64_t keys = KeysIn(block), padded = PaddedKeysIn(block);
  for (int64_t key = 0; key < padded; key += kKeyGroup) {
    uint8_t* const q = to.q + key * kInt8PanelCols;
    const int64_t scales = key / kKeyGroup * kInt8PanelCols;
    HWY_DYNAMIC_DISPATCH(PackValueGroup)
    (v.Rows(block * kKeyBlock + key, std::min(kKeyGroup, keys - key)),
     {.q = q,
      .scales = to.scales + scales,
      .biases = to.biases + scales,
      .starts = to.starts + scales,
      .signed_bytes = signed_bytes(),
      .padded_keys = std::min(kKeyGroup, padded - key)});
  }
}

}  // namespace qwen_image
#endif

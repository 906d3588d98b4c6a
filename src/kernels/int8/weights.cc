#include "kernels/int8/weights.h"

#include <algorithm>
#include <cstring>

namespace qwen_image {
namespace {

constexpr int kMaxGroup = 64, kMinGroup = 16;

int BitsOf(const WeightCoding& coding) {
  return coding.blocks ? coding.blocks->integers.bits : coding.groups.bits;
}

// The integers of a row, and its scales and biases in groups of `group`.
void UnpackRow(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth, int group, uint8_t* q,
               float* scales, float* biases) {
  const WeightCoding& coding = *w.coding;
  const int64_t begin = (row * w.cols + first) / coding.unit(), count = depth / coding.unit();
  if (!coding.blocks) {
    coding.groups.Unpack(begin, count, q);
    coding.groups.ReadScales(begin, count, scales, biases);
    const int copies = coding.groups.group_size / group;  // a group of 128 is two of 64
    for (int64_t i = count * copies - 1; i > 0 && copies > 1; --i) {
      scales[i] = scales[i / copies];
      biases[i] = biases[i / copies];
    }
    return;
  }
  const auto* data = static_cast<const std::byte*>(w.data) + begin * coding.blocks->bytes;
  coding.blocks->integers.unpack(data, count, q, scales, biases);
  if (coding.scales.empty()) return;
  const float scale = coding.scales[coding.scales.size() == 1 ? 0 : static_cast<size_t>(row)];
  for (int64_t i = 0; i < depth / group; ++i) {
    scales[i] *= scale;
    biases[i] *= scale;
  }
}

// Four values of depth, as one number.
using Four = uint32_t;
typedef Four Fours __attribute__((vector_size(16)));  // of consecutive depth in a row, or of four rows

Fours LoadFours(const uint8_t* from) {
  Fours v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

// [kInt8PanelCols][depth] → [depth / 4][kInt8PanelCols][4]: a transposition of fours, 4 × 4 at a time.
void Interleave(const uint8_t* rows, int64_t depth, uint8_t* to) {
  for (int64_t k = 0; k < depth; k += 16) {
    for (int c = 0; c < kInt8PanelCols; c += 4) {
      const uint8_t* const from = rows + c * depth + k;
      const Fours r0 = LoadFours(from), r1 = LoadFours(from + depth), r2 = LoadFours(from + 2 * depth),
                  r3 = LoadFours(from + 3 * depth);
      const Fours low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
      const Fours low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      const Fours high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      const Fours high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      const Fours columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int i = 0; i < 4; ++i) {
        std::memcpy(to + (k + 4 * i) * kInt8PanelCols + 4 * c, &columns[i], sizeof(Fours));
      }
    }
  }
}

void SplitNibbles(uint8_t* low, uint8_t* high, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    high[i] = low[i] >> 4;
    low[i] &= 15;
  }
}

// q − 128 as signed numbers; the biases make up for it.
void MakeSigned(uint8_t* q, int64_t count, const float* scales, float* biases, int64_t groups) {
  for (int64_t i = 0; i < count; ++i) q[i] ^= 0x80;
  for (int64_t i = 0; i < groups; ++i) biases[i] += 128.0f * scales[i];
}

}  // namespace

int Int8GroupOf(const WeightMatrix& w) {
  if (!w.coding) return 0;
  const int group =
      w.coding->blocks ? w.coding->blocks->integers.group : std::min(w.coding->groups.group_size, kMaxGroup);
  return group > 0 && w.cols % group == 0 ? group : 0;
}

int Int8PlanesOf(const WeightMatrix& w, const Int8Kernel& kernel) {
  return kernel.weights == Int8Weights::kNibbles && BitsOf(*w.coding) > 4 ? 2 : 1;
}

int64_t Int8DepthUnit(const WeightMatrix& w) { return std::max<int64_t>(w.coding->unit(), Int8GroupOf(w)); }

void UnpackInt8Panel(const WeightMatrix& w, int64_t row, int64_t cols, int64_t first, int64_t depth,
                     const Int8Kernel& kernel, uint8_t* scratch, const Int8PanelBuffer& to) {
  const int group = Int8GroupOf(w);
  const int64_t groups = depth / group;
  float scales[kInt8MaxDepth / kMinGroup], biases[kInt8MaxDepth / kMinGroup];
  for (int64_t c = 0; c < kInt8PanelCols; ++c) {
    uint8_t* const q = scratch + c * depth;
    if (c < cols) {
      UnpackRow(w, row + c, first, depth, group, q, scales, biases);
    } else {
      std::copy_n(q - depth, depth, q);
    }
    for (int64_t g = 0; g < groups; ++g) {
      to.scales[g * kInt8PanelCols + c] = scales[g];
      to.biases[g * kInt8PanelCols + c] = biases[g];
    }
  }
  Interleave(scratch, depth, to.q);
  const int64_t count = depth * kInt8PanelCols;
  if (Int8PlanesOf(w, kernel) == 2) SplitNibbles(to.q, to.q + to.plane_bytes, count);
  if (kernel.weights == Int8Weights::kSigned && BitsOf(*w.coding) == 8) {
    MakeSigned(to.q, count, to.scales, to.biases, groups * kInt8PanelCols);
  }
}

}  // namespace qwen_image

#include "kernels/int8/weights.h"

#include <algorithm>

#include "kernels/int8/interleave.h"

namespace qwen_image {
namespace {

constexpr int kMinGroup = 16;

// The part of a row that a panel takes, in units of its coding.
struct RowPart {
  int64_t row, begin, count;
};

RowPart PartOf(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth) {
  const int64_t unit = w.coding->unit();
  return {row, (row * w.cols + first) / unit, depth / unit};
}

// [count][kInt8PanelCols] → [count · times][kInt8PanelCols], each row `times` times in turn; in place.
void RepeatRows(float* rows, int64_t count, int64_t times) {
  for (int64_t to = count * times - 1; times > 1 && to > 0; --to)
    std::copy_n(rows + to / times * kInt8PanelCols, kInt8PanelCols, rows + to * kInt8PanelCols);
}

}  // namespace

int Int8GroupOf(const WeightMatrix& w) {
  if (!w.coding) return 0;
  const int group = w.coding->integers().group;
  return group > 0 && w.cols % group == 0 ? group : 0;
}

int64_t Int8RotationOf(const WeightMatrix& w) { return w.coding ? w.coding->integers().rotation : 0; }

int Int8PlanesOf(const WeightMatrix& w, const Int8Kernel& kernel) {
  return kernel.weights == Int8Weights::kNibbles && w.coding->integers().bits > 4 ? 2 : 1;
}

int64_t Int8DepthUnit(const WeightMatrix& w) { return std::max<int64_t>(w.coding->unit(), Int8GroupOf(w)); }

void UnpackInt8Panel(const WeightMatrix& w, int64_t row, int64_t cols, int64_t first, int64_t depth,
                     const Int8Kernel& kernel, uint8_t* scratch, const Int8PanelBuffer& to) {
  const WeightCoding& coding = *w.coding;
  const PackedIntegers& packed = coding.integers().packed;
  const int group = Int8GroupOf(w);
  const int64_t groups = depth / group;
  constexpr int64_t kMostGroups = kInt8MaxDepth / kMinGroup;
  float scales[kInt8PanelCols * kMostGroups], biases[kInt8PanelCols * kMostGroups];
  PanelRows rows = {.rows = {}, .block_depth = depth, .block_bytes = 0};
  if (packed.bits > 0 &&
      packed.bits * coding.unit() < 8 * coding.unit_bytes()) {  // there are gaps between them
    rows.block_depth = coding.unit();
    rows.block_bytes = coding.unit_bytes();
  }
  for (int c = 0; c < kInt8PanelCols; ++c) {
    const RowPart part = PartOf(w, row + std::min<int64_t>(c, cols - 1), first, depth);
    uint8_t* const q = packed.bits > 0 ? nullptr : scratch + c * depth;
    coding.Unpack(w.Units(part.begin), part.row, part.begin, part.count, q, scales + c * groups,
                  biases + c * groups);
    rows.rows[c] = q ? q : reinterpret_cast<const uint8_t*>(w.Units(part.begin)) + packed.offset;
  }
  const bool shifted =
      packed.bits != 4 && kernel.weights == Int8Weights::kSigned && coding.integers().bits == 8;
  TransposeFloats(scales, groups, groups, to.scales);
  TransposeFloats(biases, groups, groups, to.biases);
  // q − 128 as signed numbers; the biases make up for it.
  for (int64_t i = 0; shifted && i < groups * kInt8PanelCols; ++i) to.biases[i] += 128.0f * to.scales[i];
  RepeatRows(to.scales, groups, group / to.group);
  RepeatRows(to.biases, groups, group / to.group);
  if (packed.bits == 4) return InterleaveNibbles(rows, depth, packed.apart, to.q);
  const auto flip = static_cast<uint8_t>(packed.flip ^ (shifted ? 0x80 : 0));
  InterleaveBytes(rows, depth, flip, to.q, Int8PlanesOf(w, kernel) == 2 ? to.q + to.plane_bytes : nullptr);
}

void PrefetchInt8Row(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth) {
  const RowPart part = PartOf(w, row, first, depth);
  PrefetchBytes(w.Units(part.begin), part.count * w.coding->unit_bytes());
  w.coding->PrefetchSides(part.begin, part.count);
}

}  // namespace qwen_image

#include "kernels/int8/weights.h"

#include <algorithm>

#include "kernels/int8/interleave.h"

namespace qwen_image {
namespace {

constexpr int kMaxGroup = 64, kMinGroup = 16;

int BitsOf(const WeightCoding& coding) {
  return coding.blocks ? coding.blocks->integers.bits : coding.groups.bits;
}

PackedIntegers PackedOf(const WeightCoding& coding) {
  if (coding.blocks) return coding.blocks->integers.packed;
  const int bits = coding.groups.bits;
  return bits == 4 || bits == 8 ? PackedIntegers{.bits = bits} : PackedIntegers{};
}

int64_t UnitBytes(const WeightCoding& coding) {
  return coding.blocks ? coding.blocks->bytes : static_cast<int64_t>(coding.groups.group_bytes());
}

const std::byte* UnitsOf(const WeightMatrix& w, int64_t first_unit) {
  const auto* units = w.coding->blocks ? static_cast<const std::byte*>(w.data) : w.coding->groups.packed;
  return units + first_unit * UnitBytes(*w.coding);
}

// The part of a row that a panel takes, in units of its coding.
struct RowPart {
  int64_t row, begin, count;
};

RowPart PartOf(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth) {
  const int64_t unit = w.coding->unit();
  return {row, (row * w.cols + first) / unit, depth / unit};
}

// The scales and biases in groups of `group`; and the integers, unless q is null.
void UnpackPart(const WeightMatrix& w, const RowPart& part, int group, uint8_t* q, float* scales,
                float* biases) {
  const WeightCoding& coding = *w.coding;
  const int64_t groups = part.count * coding.unit() / group;
  if (!coding.blocks) {
    if (q) coding.groups.Unpack(part.begin, part.count, q);
    coding.groups.ReadScales(part.begin, part.count, scales, biases);
    const int copies = coding.groups.group_size / group;  // a group of 128 is two of 64
    for (int64_t i = groups - 1; i > 0 && copies > 1; --i) {
      scales[i] = scales[i / copies];
      biases[i] = biases[i / copies];
    }
    return;
  }
  const std::byte* const blocks = UnitsOf(w, part.begin);
  const IntegerBlocks& integers = coding.blocks->integers;
  if (q) {
    integers.unpack(blocks, part.count, q, scales, biases);
  } else {
    integers.read_scales(blocks, part.count, scales, biases);
  }
  if (coding.scales.empty()) return;
  const float scale = coding.scales[coding.scales.size() == 1 ? 0 : static_cast<size_t>(part.row)];
  for (int64_t i = 0; i < groups; ++i) {
    scales[i] *= scale;
    biases[i] *= scale;
  }
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
  const WeightCoding& coding = *w.coding;
  const PackedIntegers packed = PackedOf(coding);
  const int group = Int8GroupOf(w);
  const int64_t groups = depth / group;
  constexpr int64_t kMostGroups = kInt8MaxDepth / kMinGroup;
  float scales[kInt8PanelCols * kMostGroups], biases[kInt8PanelCols * kMostGroups];
  PanelRows rows = {.rows = {}, .block_depth = depth, .block_bytes = 0};
  if (packed.bits > 0 &&
      packed.bits * coding.unit() < 8 * UnitBytes(coding)) {  // there are gaps between them
    rows.block_depth = coding.unit();
    rows.block_bytes = UnitBytes(coding);
  }
  for (int c = 0; c < kInt8PanelCols; ++c) {
    const RowPart part = PartOf(w, row + std::min<int64_t>(c, cols - 1), first, depth);
    uint8_t* const q = packed.bits > 0 ? nullptr : scratch + c * depth;
    UnpackPart(w, part, group, q, scales + c * groups, biases + c * groups);
    rows.rows[c] = q ? q : reinterpret_cast<const uint8_t*>(UnitsOf(w, part.begin)) + packed.offset;
  }
  TransposeFloats(scales, groups, groups, to.scales);
  TransposeFloats(biases, groups, groups, to.biases);
  if (packed.bits == 4) return InterleaveNibbles(rows, depth, packed.apart, to.q);
  const bool shifted = kernel.weights == Int8Weights::kSigned && BitsOf(coding) == 8;
  const auto flip = static_cast<uint8_t>(packed.flip ^ (shifted ? 0x80 : 0));
  InterleaveBytes(rows, depth, flip, to.q, Int8PlanesOf(w, kernel) == 2 ? to.q + to.plane_bytes : nullptr);
  // q − 128 as signed numbers; the biases make up for it.
  for (int64_t i = 0; shifted && i < groups * kInt8PanelCols; ++i) to.biases[i] += 128.0f * to.scales[i];
}

void PrefetchInt8Row(const WeightMatrix& w, int64_t row, int64_t first, int64_t depth) {
  const WeightCoding& coding = *w.coding;
  const RowPart part = PartOf(w, row, first, depth);
  const auto fetch = [&](const std::byte* from, int64_t bytes) {
    constexpr int64_t kLine = 64;
    constexpr int kRead = 0, kSecondLevel = 2;
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, kRead, kSecondLevel);
    __builtin_prefetch(from + bytes - 1, kRead, kSecondLevel);  // where lines begin is not known
  };
  fetch(UnitsOf(w, part.begin), part.count * UnitBytes(coding));
  if (coding.blocks) return;
  const MlxGroups& groups = coding.groups;
  const auto scale_bytes = static_cast<int64_t>(SizeOf(groups.scales_dtype)),
             bias_bytes = static_cast<int64_t>(SizeOf(groups.biases_dtype));
  fetch(groups.scales + part.begin * scale_bytes, part.count * scale_bytes);
  fetch(groups.biases + part.begin * bias_bytes, part.count * bias_bytes);
}

}  // namespace qwen_image

#include "kernels/weight_matrix.h"

#include <array>
#include <bit>
#include <cstring>

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "packed words are read as bytes");

constexpr size_t kUnit = 8;  // values that fill whole bytes whatever their bits
constexpr size_t kMaxGroupSize = 128;

// kBits is known to the compiler, so that it can unroll and vectorise.
template <size_t kBits>
void UnpackValues(const std::byte* __restrict packed, size_t count, uint8_t* __restrict to) {
  constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  for (size_t done = 0; done < count; done += kUnit) {
    uint64_t unit = 0;  // kUnit values are kBits bytes
    std::memcpy(&unit, packed, kBits);
    packed += kBits;
    for (size_t i = 0; i < kUnit; ++i) to[done + i] = static_cast<uint8_t>(unit >> (i * kBits) & kMask);
  }
}

template <>
void UnpackValues<4>(const std::byte* __restrict packed, size_t count, uint8_t* __restrict to) {
  for (size_t i = 0; i < count / 2; ++i) {
    const auto pair = std::to_integer<uint8_t>(packed[i]);
    to[2 * i] = pair & 15;
    to[2 * i + 1] = pair >> 4;
  }
}

template <>
void UnpackValues<8>(const std::byte* __restrict packed, size_t count, uint8_t* __restrict to) {
  std::memcpy(to, packed, count);
}

void UnpackBits(int bits, const std::byte* __restrict packed, size_t count, uint8_t* __restrict to) {
  switch (bits) {
    case 2:
      return UnpackValues<2>(packed, count, to);
    case 3:
      return UnpackValues<3>(packed, count, to);
    case 4:
      return UnpackValues<4>(packed, count, to);
    case 5:
      return UnpackValues<5>(packed, count, to);
    case 6:
      return UnpackValues<6>(packed, count, to);
    default:
      return UnpackValues<8>(packed, count, to);
  }
}

}  // namespace

void MlxGroups::Unpack(int64_t first_group, int64_t count, uint8_t* to) const {
  UnpackBits(bits, packed + static_cast<size_t>(first_group) * group_bytes(),
             static_cast<size_t>(count * group_size), to);
}

void MlxGroups::ReadScales(int64_t first_group, int64_t count, float* scales_to, float* biases_to) const {
  const auto at = static_cast<size_t>(first_group);
  ConvertToFloat(scales + at * SizeOf(scales_dtype), scales_dtype, count, scales_to);
  ConvertToFloat(biases + at * SizeOf(biases_dtype), biases_dtype, count, biases_to);
}

void MlxGroups::Dequantize(int64_t first_group, int64_t count, float* to) const {
  std::array<uint8_t, kMaxGroupSize> q;
  const auto size = static_cast<size_t>(group_size);
  for (int64_t group = first_group; group < first_group + count; ++group) {
    Unpack(group, 1, q.data());
    float scale, bias;
    ReadScales(group, 1, &scale, &bias);
    for (size_t i = 0; i < size; ++i) to[i] = scale * static_cast<float>(q[i]) + bias;
    to += size;
  }
}

void DecodeRow(const WeightMatrix& w, int64_t row, int64_t first, int64_t count, float* to) {
  const auto* data = static_cast<const std::byte*>(w.data);
  if (!w.coding) {
    return ConvertToFloat(data + (row * w.cols + first) * static_cast<int64_t>(SizeOf(w.dtype)), w.dtype,
                          count, to);
  }
  const WeightCoding& coding = *w.coding;
  const int64_t unit = coding.unit();
  const int64_t begin = (row * w.cols + first) / unit;
  if (!coding.blocks) return coding.groups.Dequantize(begin, count / unit, to);
  coding.blocks->decode(data + begin * coding.blocks->bytes, count / unit, to);
  if (coding.scales.empty()) return;
  const float scale = coding.scales[coding.scales.size() == 1 ? 0 : static_cast<size_t>(row)];
  for (int64_t i = 0; i < count; ++i) to[i] *= scale;
}

}  // namespace qwen_image

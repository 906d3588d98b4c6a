#include "kernels/mlx_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "packed words are read as bytes");

constexpr size_t kUnit = 8;  // values that fill whole bytes whatever their bits
constexpr int kMinGroupSize = 32;
constexpr int kValuesAtOnce = 512;  // a whole number of groups, whatever their size

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

// to = scale · q + bias. The inner count is known to the compiler, so that it can unroll and vectorise.
void Dequantize32s(const uint8_t* __restrict q, int64_t count, float scale, float bias,
                   float* __restrict to) {
  for (int64_t done = 0; done < count; done += kMinGroupSize) {
    for (int64_t i = done; i < done + kMinGroupSize; ++i) to[i] = scale * static_cast<float>(q[i]) + bias;
  }
}

constexpr int kMaxIntegerGroup = 64;  // of a product with 8-bit activations; a group of 128 is two of these

IntegerForm FormOf(const MlxGroups& groups) {
  // Of the other widths the integers do not lie in bytes or halves of bytes.
  const bool in_bytes = groups.bits == 4 || groups.bits == 8;
  return {std::min(groups.group_size, kMaxIntegerGroup), groups.bits,
          in_bytes ? PackedIntegers{.bits = groups.bits} : PackedIntegers{}};
}

int64_t ScaleBytes(const MlxGroups& groups) { return static_cast<int64_t>(SizeOf(groups.scales_dtype)); }
int64_t BiasBytes(const MlxGroups& groups) { return static_cast<int64_t>(SizeOf(groups.biases_dtype)); }

class MlxCoding : public WeightCoding {
 public:
  explicit MlxCoding(const MlxGroups& groups)
      : WeightCoding(groups.group_size, static_cast<int64_t>(groups.group_bytes()),
                     ScaleBytes(groups) + BiasBytes(groups), FormOf(groups), /*scales_rows=*/false),
        groups_(groups) {}

  std::string Name() const override { return fmt::format("MLX {}-bit", groups_.bits); }
  const MlxGroups* mlx() const override { return &groups_; }

  void Decode(const std::byte*, int64_t, int64_t first, int64_t count, float* to) const override {
    groups_.Dequantize(first, count, to);
  }

  void Unpack(const std::byte*, int64_t, int64_t first, int64_t count, uint8_t* q, float* scales,
              float* biases) const override {
    if (q) groups_.Unpack(first, count, q);
    groups_.ReadScales(first, count, scales, biases);
    const int copies = groups_.group_size / integers().group;
    for (int64_t i = count * copies - 1; i > 0 && copies > 1; --i) {
      scales[i] = scales[i / copies];
      biases[i] = biases[i / copies];
    }
  }

  void PrefetchSides(int64_t first, int64_t count) const override {
    const int64_t scale_bytes = ScaleBytes(groups_), bias_bytes = BiasBytes(groups_);
    PrefetchBytes(groups_.scales + first * scale_bytes, count * scale_bytes);
    PrefetchBytes(groups_.biases + first * bias_bytes, count * bias_bytes);
  }

 private:
  MlxGroups groups_;
};

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
  // Several groups together: what is the same for all of them takes as long as the arithmetic of one.
  std::array<uint8_t, kValuesAtOnce> q;
  std::array<float, kValuesAtOnce / kMinGroupSize> scales, biases;
  const int64_t most = kValuesAtOnce / group_size;
  for (int64_t done = 0; done < count; done += most) {
    const int64_t groups = std::min(most, count - done);
    Unpack(first_group + done, groups, q.data());
    ReadScales(first_group + done, groups, scales.data(), biases.data());
    for (int64_t i = 0; i < groups; ++i, to += group_size) {
      Dequantize32s(q.data() + i * group_size, group_size, scales[static_cast<size_t>(i)],
                    biases[static_cast<size_t>(i)], to);
    }
  }
}

std::shared_ptr<const WeightCoding> MakeMlxCoding(const MlxGroups& groups) {
  return std::make_shared<MlxCoding>(groups);
}

}  // namespace qwen_image

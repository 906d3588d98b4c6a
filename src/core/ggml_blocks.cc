// A block is copied into a struct of its layout first: that settles alignment, and tells the compiler that
// the output does not overlap the input, without which it would not vectorise.
//
// In all of these the values of one byte or one bit plane are not neighbours: bits 0–3 of 16 or 32 bytes in a
// row hold as many neighbouring values, then bits 4–7 of the same bytes hold the next ones.
#include "core/ggml_blocks.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "core/dtype.h"

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are copied into structs");

// One scale for 32 values
// -------------------------------------------------------------------------------------

struct Q8_0 {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 8, kOffset = 128;
  uint16_t scale;  // this and all other scales: F16
  int8_t q[32];
};

struct Q4_0 {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 4, kOffset = 8;
  uint16_t scale;
  uint8_t q[16];
};

struct Q4_1 {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 4, kOffset = 0;
  uint16_t scale;
  uint16_t min;
  uint8_t q[16];
};

struct Q5_0 {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 5, kOffset = 16;
  uint16_t scale;
  uint8_t high[4];  // bit i: the fifth bit of value i
  uint8_t low[16];
};

struct Q5_1 {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 5, kOffset = 0;
  uint16_t scale;
  uint16_t min;
  uint8_t high[4];
  uint8_t low[16];
};

// q indexes kNonLinear.
struct Iq4Nl {
  static constexpr int kValues = 32;
  static constexpr int kGroup = 32, kBits = 8, kOffset = 127;
  uint16_t scale;
  uint8_t q[16];
};

// 256 values in groups of 16 or 32 with small scales, which have a scale of their own
// ---------------------------

struct Q2K {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 16, kBits = 2, kOffset = 0;
  uint8_t scales[16];  // of 16 values each; bits 0–3 scale, 4–7 minimum
  uint8_t q[64];
  uint16_t scale;
  uint16_t min;
};

struct Q3K {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 16, kBits = 3, kOffset = 4;
  uint8_t high[32];  // bit b of byte i: the third bit of value 32 · b + i; clear means minus 4
  uint8_t low[64];
  uint8_t scales[12];
  uint16_t scale;
};

struct Q4K {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 32, kBits = 4, kOffset = 0;
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t q[128];
};

struct Q5K {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 32, kBits = 5, kOffset = 0;
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t high[32];  // bit b of byte i: the fifth bit of value 32 · b + i
  uint8_t low[128];
};

struct Q6K {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 16, kBits = 6, kOffset = 32;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t scale;
};

struct Iq4Xs {
  static constexpr int kValues = 256;
  static constexpr int kGroup = 32, kBits = 8, kOffset = 127;
  uint16_t scale;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};

// What the 4 bits of IQ4_NL and IQ4_XS stand for: finer near zero, where most weights are.
constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// Unpack() gives a block's values as unsigned integers q, and for every group of kGroup its scale and, where
// kOffset is 0, its minimum: a value is scale · (q − kOffset), or scale · q + minimum.

void Unpack(const Q8_0& block, uint8_t* q, float* scales, float*) {
  scales[0] = FloatFromF16(block.scale);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(block.q[i] + 128);
}

// 16 bytes hold 32 values of four bits.
void UnpackFourBits(const uint8_t* packed, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = packed[i] & 15;
    q[i + 16] = packed[i] >> 4;
  }
}

void Unpack(const Q4_0& block, uint8_t* q, float* scales, float*) {
  scales[0] = FloatFromF16(block.scale);
  UnpackFourBits(block.q, q);
}

void Unpack(const Q4_1& block, uint8_t* q, float* scales, float* mins) {
  scales[0] = FloatFromF16(block.scale);
  mins[0] = FloatFromF16(block.min);
  UnpackFourBits(block.q, q);
}

// The 32 values of five bits of Q5_0 and Q5_1.
template <typename Block>
void UnpackFiveBits(const Block& block, uint8_t* q) {
  const auto high = std::bit_cast<uint32_t>(std::to_array(block.high));
  for (unsigned i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>((block.low[i] & 15) | (high >> i & 1) << 4);
    q[i + 16] = static_cast<uint8_t>(block.low[i] >> 4 | (high >> (i + 16) & 1) << 4);
  }
}

void Unpack(const Q5_0& block, uint8_t* q, float* scales, float*) {
  scales[0] = FloatFromF16(block.scale);
  UnpackFiveBits(block, q);
}

void Unpack(const Q5_1& block, uint8_t* q, float* scales, float* mins) {
  scales[0] = FloatFromF16(block.scale);
  mins[0] = FloatFromF16(block.min);
  UnpackFiveBits(block, q);
}

void UnpackNonLinear(const uint8_t* packed /*[16]*/, uint8_t* q /*[32]*/) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>(kNonLinear[packed[i] & 15] + Iq4Nl::kOffset);
    q[i + 16] = static_cast<uint8_t>(kNonLinear[packed[i] >> 4] + Iq4Nl::kOffset);
  }
}

void Unpack(const Iq4Nl& block, uint8_t* q, float* scales, float*) {
  scales[0] = FloatFromF16(block.scale);
  UnpackNonLinear(block.q, q);
}

void Unpack(const Q2K& block, uint8_t* q, float* scales, float* mins) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  for (int group = 0; group < 16; ++group, q += 16) {
    scales[group] = scale * static_cast<float>(block.scales[group] & 15);
    mins[group] = -(min * static_cast<float>(block.scales[group] >> 4));
    // 128 values share 32 bytes, in four planes of two bits.
    const uint8_t* packed = block.q + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) q[i] = packed[i] >> shift & 3;
  }
}

void Unpack(const Q3K& block, uint8_t* q, float* scales, float*) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 16; ++group, q += 16) {
    // Six bits: the lower four in bytes 0–7, first half then second; the upper two in planes of bytes 8–11.
    const int low = block.scales[group % 8] >> (group / 8 * 4) & 15;
    const int high = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
    scales[group] = scale * static_cast<float>((low | high << 4) - 32);
    const uint8_t* packed = block.low + group / 8 * 32 + group % 2 * 16;
    const uint8_t* bits = block.high + group % 2 * 16;
    const int shift = group % 8 / 2 * 2, bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((packed[i] >> shift & 3) + (bits[i] >> bit & 1) * 4);
    }
  }
}

// The eight scales and minima of six bits of Q4_K and Q5_K, times those of the block.
template <typename Block>
void SixBitScales(const Block& block, float* scales, float* mins) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  const uint8_t* packed = block.scales;
  for (int i = 0; i < 4; ++i) {
    // Bytes 0–3 hold scales 0–3, bytes 4–7 minima 0–3. Bytes 8–11 hold the lower four bits of scale and
    // minimum 4–7, whose upper two fill the first eight bytes up.
    const int upper_scale = (packed[8 + i] & 15) | (packed[i] >> 6) << 4;
    const int upper_min = packed[8 + i] >> 4 | (packed[4 + i] >> 6) << 4;
    scales[i] = scale * static_cast<float>(packed[i] & 63);
    mins[i] = -(min * static_cast<float>(packed[4 + i] & 63));
    scales[4 + i] = scale * static_cast<float>(upper_scale);
    mins[4 + i] = -(min * static_cast<float>(upper_min));
  }
}

void Unpack(const Q4K& block, uint8_t* q, float* scales, float* mins) {
  SixBitScales(block, scales, mins);
  for (int group = 0; group < 8; ++group, q += 32) {
    const uint8_t* packed = block.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) q[i] = packed[i] >> shift & 15;
  }
}

void Unpack(const Q5K& block, uint8_t* q, float* scales, float* mins) {
  SixBitScales(block, scales, mins);
  for (int group = 0; group < 8; ++group, q += 32) {
    const uint8_t* low = block.low + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<uint8_t>((low[i] >> shift & 15) | (block.high[i] >> group & 1) << 4);
    }
  }
}

void Unpack(const Q6K& block, uint8_t* q, float* scales, float*) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 16; ++group, q += 16) {
    scales[group] = scale * static_cast<float>(block.scales[group]);
    // 128 values share 64 bytes of lower bits, in two planes of four, and 32 of upper, in four planes of two.
    const int half = group / 8, of_half = group % 8;
    const uint8_t* low = block.low + half * 64 + of_half % 4 * 16;
    const uint8_t* high = block.high + half * 32 + of_half % 2 * 16;
    const int low_shift = of_half / 4 * 4, high_shift = of_half / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    }
  }
}

void Unpack(const Iq4Xs& block, uint8_t* q, float* scales, float*) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 8; ++group, q += 32) {
    const int low = block.scales_low[group / 2] >> (group % 2 * 4) & 15;
    const int high = block.scales_high >> (group * 2) & 3;
    scales[group] = scale * static_cast<float>((low | high << 4) - 32);
    UnpackNonLinear(block.q + group * 16, q);
  }
}

template <typename Block>
constexpr int kGroups = Block::kValues / Block::kGroup;

template <typename Block>
Block ReadBlock(const std::byte* from) {
  Block block;
  std::memcpy(&block, from, sizeof(Block));
  return block;
}

template <typename Block>
void DecodeBlocks(const std::byte* blocks, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i, blocks += sizeof(Block)) {
    uint8_t q[Block::kValues];
    float scales[kGroups<Block>], mins[kGroups<Block>] = {};
    Unpack(ReadBlock<Block>(blocks), q, scales, mins);
    for (int group = 0; group < kGroups<Block>; ++group, to += Block::kGroup) {
      const uint8_t* const from = q + group * Block::kGroup;
      for (int j = 0; j < Block::kGroup; ++j) {
        const float product = scales[group] * static_cast<float>(from[j] - Block::kOffset);
        to[j] = Block::kOffset == 0 ? product + mins[group] : product;
      }
    }
  }
}

template <typename Block>
void UnpackBlock(const std::byte* from, uint8_t* q, float* scales, float* biases) {
  Unpack(ReadBlock<Block>(from), q, scales, biases);
  for (int group = 0; Block::kOffset > 0 && group < kGroups<Block>; ++group) {
    biases[group] = -static_cast<float>(Block::kOffset) * scales[group];
  }
}

template <typename Block>
void UnpackBlocks(const std::byte* blocks, int64_t count, uint8_t* q, float* scales, float* biases) {
  for (int64_t i = 0; i < count; ++i) {
    UnpackBlock<Block>(blocks + i * static_cast<int64_t>(sizeof(Block)), q + i * Block::kValues,
                       scales + i * kGroups<Block>, biases + i * kGroups<Block>);
  }
}

template <typename Block>
void ReadScales(const std::byte* blocks, int64_t count, float* scales, float* biases) {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t q[Block::kValues];  // never read, so the compiler leaves it out
    UnpackBlock<Block>(blocks + i * static_cast<int64_t>(sizeof(Block)), q, scales + i * kGroups<Block>,
                       biases + i * kGroups<Block>);
  }
}

template <typename Block>
constexpr PackedIntegers kPacked = {};
template <>
constexpr PackedIntegers kPacked<Q8_0> = {.bits = 8, .offset = offsetof(Q8_0, q), .flip = 0x80};
template <>
constexpr PackedIntegers kPacked<Q4_0> = {.bits = 4, .offset = offsetof(Q4_0, q), .apart = 16};
template <>
constexpr PackedIntegers kPacked<Q4_1> = {.bits = 4, .offset = offsetof(Q4_1, q), .apart = 16};
template <>
constexpr PackedIntegers kPacked<Q4K> = {.bits = 4, .offset = offsetof(Q4K, q), .apart = 32};

// A size that is not the file format's would be padding of the struct.
template <typename Block, size_t bytes>
constexpr BlockFormat Format(DType dtype, std::string_view name, int ggml) {
  static_assert(sizeof(Block) == bytes);
  return {dtype,
          name,
          Block::kValues,
          bytes,
          DecodeBlocks<Block>,
          {Block::kGroup, Block::kBits, UnpackBlocks<Block>, kPacked<Block>, ReadScales<Block>},
          ggml};
}

// In the order of DType.
constexpr BlockFormat kFormats[] = {
    Format<Q8_0, 34>(DType::kQ8_0, "Q8_0", 8),       Format<Q4_0, 18>(DType::kQ4_0, "Q4_0", 2),
    Format<Q4_1, 20>(DType::kQ4_1, "Q4_1", 3),       Format<Q5_0, 22>(DType::kQ5_0, "Q5_0", 6),
    Format<Q5_1, 24>(DType::kQ5_1, "Q5_1", 7),       Format<Q2K, 84>(DType::kQ2_K, "Q2_K", 10),
    Format<Q3K, 110>(DType::kQ3_K, "Q3_K", 11),      Format<Q4K, 144>(DType::kQ4_K, "Q4_K", 12),
    Format<Q5K, 176>(DType::kQ5_K, "Q5_K", 13),      Format<Q6K, 210>(DType::kQ6_K, "Q6_K", 14),
    Format<Iq4Nl, 18>(DType::kIQ4_NL, "IQ4_NL", 20), Format<Iq4Xs, 136>(DType::kIQ4_XS, "IQ4_XS", 23),
};

}  // namespace

std::span<const BlockFormat> GgmlBlockFormats() { return kFormats; }

}  // namespace qwen_image

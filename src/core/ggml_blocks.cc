// A block is copied into a struct of its layout first: that settles alignment, and tells the compiler that
// the output does not overlap the input, without which it would not vectorise.
//
// In all of these the values of one byte or one bit plane are not neighbours: bits 0–3 of 16 or 32 bytes in a
// row hold as many neighbouring values, then bits 4–7 of the same bytes hold the next ones.
#include "core/ggml_blocks.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/dtype.h"

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are copied into structs");

// One scale for 32 values
// -------------------------------------------------------------------------------------

struct Q8_0 {
  static constexpr int kValues = 32;
  uint16_t scale;  // this and all other scales: F16
  int8_t q[32];
};

struct Q4_0 {
  static constexpr int kValues = 32;
  uint16_t scale;
  uint8_t q[16];
};

struct Q4_1 {
  static constexpr int kValues = 32;
  uint16_t scale;
  uint16_t min;
  uint8_t q[16];
};

struct Q5_0 {
  static constexpr int kValues = 32;
  uint16_t scale;
  uint8_t high[4];  // bit i: the fifth bit of value i
  uint8_t low[16];
};

struct Q5_1 {
  static constexpr int kValues = 32;
  uint16_t scale;
  uint16_t min;
  uint8_t high[4];
  uint8_t low[16];
};

// q indexes kNonLinear.
struct Iq4Nl {
  static constexpr int kValues = 32;
  uint16_t scale;
  uint8_t q[16];
};

// 256 values in groups of 16 or 32 with small scales, which have a scale of their own
// ---------------------------

struct Q2K {
  static constexpr int kValues = 256;
  uint8_t scales[16];  // of 16 values each; bits 0–3 scale, 4–7 minimum
  uint8_t q[64];
  uint16_t scale;
  uint16_t min;
};

struct Q3K {
  static constexpr int kValues = 256;
  uint8_t high[32];  // bit b of byte i: the third bit of value 32 · b + i; clear means minus 4
  uint8_t low[64];
  uint8_t scales[12];
  uint16_t scale;
};

struct Q4K {
  static constexpr int kValues = 256;
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t q[128];
};

struct Q5K {
  static constexpr int kValues = 256;
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t high[32];  // bit b of byte i: the fifth bit of value 32 · b + i
  uint8_t low[128];
};

struct Q6K {
  static constexpr int kValues = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t scale;
};

struct Iq4Xs {
  static constexpr int kValues = 256;
  uint16_t scale;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};

// What the 4 bits of IQ4_NL and IQ4_XS stand for: finer near zero, where most weights are.
constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

void Decode(const Q8_0& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(block.q[i]);
}

void Decode(const Q4_0& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>((block.q[i] & 15) - 8);
    to[i + 16] = scale * static_cast<float>((block.q[i] >> 4) - 8);
  }
}

void Decode(const Q4_1& block, float* to) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>(block.q[i] & 15) + min;
    to[i + 16] = scale * static_cast<float>(block.q[i] >> 4) + min;
  }
}

// The 32 values of five bits of Q5_0 and Q5_1.
template <typename Block>
std::array<uint8_t, 32> FiveBits(const Block& block) {
  const auto high = std::bit_cast<uint32_t>(std::to_array(block.high));
  std::array<uint8_t, 32> q;
  for (unsigned i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>((block.low[i] & 15) | (high >> i & 1) << 4);
    q[i + 16] = static_cast<uint8_t>(block.low[i] >> 4 | (high >> (i + 16) & 1) << 4);
  }
  return q;
}

void Decode(const Q5_0& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  const std::array<uint8_t, 32> q = FiveBits(block);
  for (size_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(q[i] - 16);
}

void Decode(const Q5_1& block, float* to) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  const std::array<uint8_t, 32> q = FiveBits(block);
  for (size_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(q[i]) + min;
}

void DecodeNonLinear(const uint8_t* q /*[16]*/, float scale, float* to /*[32]*/) {
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * static_cast<float>(kNonLinear[q[i] & 15]);
    to[i + 16] = scale * static_cast<float>(kNonLinear[q[i] >> 4]);
  }
}

void Decode(const Iq4Nl& block, float* to) { DecodeNonLinear(block.q, FloatFromF16(block.scale), to); }

void Decode(const Q2K& block, float* to) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  for (int group = 0; group < 16; ++group, to += 16) {
    const float group_scale = scale * static_cast<float>(block.scales[group] & 15);
    const float group_min = min * static_cast<float>(block.scales[group] >> 4);
    // 128 values share 32 bytes, in four planes of two bits.
    const uint8_t* q = block.q + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) to[i] = group_scale * static_cast<float>(q[i] >> shift & 3) - group_min;
  }
}

void Decode(const Q3K& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 16; ++group, to += 16) {
    // Six bits: the lower four in bytes 0–7, first half then second; the upper two in planes of bytes 8–11.
    const int low = block.scales[group % 8] >> (group / 8 * 4) & 15;
    const int high = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    const uint8_t* q = block.low + group / 8 * 32 + group % 2 * 16;
    const uint8_t* bits = block.high + group % 2 * 16;
    const int shift = group % 8 / 2 * 2, bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      to[i] = group_scale * static_cast<float>((q[i] >> shift & 3) - 4 + (bits[i] >> bit & 1) * 4);
    }
  }
}

// The eight scales and minima of six bits of Q4_K and Q5_K, times those of the block.
struct ScalesAndMins {
  float scale[8];
  float min[8];
};

template <typename Block>
ScalesAndMins SixBitScales(const Block& block) {
  const float scale = FloatFromF16(block.scale), min = FloatFromF16(block.min);
  const uint8_t* packed = block.scales;
  ScalesAndMins result;
  for (int i = 0; i < 4; ++i) {
    // Bytes 0–3 hold scales 0–3, bytes 4–7 minima 0–3. Bytes 8–11 hold the lower four bits of scale and
    // minimum 4–7, whose upper two fill the first eight bytes up.
    const int upper_scale = (packed[8 + i] & 15) | (packed[i] >> 6) << 4;
    const int upper_min = packed[8 + i] >> 4 | (packed[4 + i] >> 6) << 4;
    result.scale[i] = scale * static_cast<float>(packed[i] & 63);
    result.min[i] = min * static_cast<float>(packed[4 + i] & 63);
    result.scale[4 + i] = scale * static_cast<float>(upper_scale);
    result.min[4 + i] = min * static_cast<float>(upper_min);
  }
  return result;
}

void Decode(const Q4K& block, float* to) {
  const ScalesAndMins groups = SixBitScales(block);
  for (int group = 0; group < 8; ++group, to += 32) {
    const float scale = groups.scale[group], min = groups.min[group];
    const uint8_t* q = block.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(q[i] >> shift & 15) - min;
  }
}

void Decode(const Q5K& block, float* to) {
  const ScalesAndMins groups = SixBitScales(block);
  for (int group = 0; group < 8; ++group, to += 32) {
    const float scale = groups.scale[group], min = groups.min[group];
    const uint8_t* low = block.low + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int q = (low[i] >> shift & 15) | (block.high[i] >> group & 1) << 4;
      to[i] = scale * static_cast<float>(q) - min;
    }
  }
}

void Decode(const Q6K& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 16; ++group, to += 16) {
    const float group_scale = scale * static_cast<float>(block.scales[group]);
    // 128 values share 64 bytes of lower bits, in two planes of four, and 32 of upper, in four planes of two.
    const int half = group / 8, of_half = group % 8;
    const uint8_t* low = block.low + half * 64 + of_half % 4 * 16;
    const uint8_t* high = block.high + half * 32 + of_half % 2 * 16;
    const int low_shift = of_half / 4 * 4, high_shift = of_half / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int q = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
      to[i] = group_scale * static_cast<float>(q - 32);
    }
  }
}

void Decode(const Iq4Xs& block, float* to) {
  const float scale = FloatFromF16(block.scale);
  for (int group = 0; group < 8; ++group, to += 32) {
    const int low = block.scales_low[group / 2] >> (group % 2 * 4) & 15;
    const int high = block.scales_high >> (group * 2) & 3;
    DecodeNonLinear(block.q + group * 16, scale * static_cast<float>((low | high << 4) - 32), to);
  }
}

template <typename Block>
void DecodeBlocks(const std::byte* blocks, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    Decode(block, to);
    blocks += sizeof(Block);
    to += Block::kValues;
  }
}

// A size that is not the file format's would be padding of the struct.
template <typename Block, size_t bytes>
constexpr BlockFormat Format(std::string_view name) {
  static_assert(sizeof(Block) == bytes);
  return {name, Block::kValues, bytes, DecodeBlocks<Block>};
}

constexpr BlockFormat kFormats[] = {
    Format<Q8_0, 34>("Q8_0"), Format<Q4_0, 18>("Q4_0"),    Format<Q4_1, 20>("Q4_1"),
    Format<Q5_0, 22>("Q5_0"), Format<Q5_1, 24>("Q5_1"),    Format<Q2K, 84>("Q2_K"),
    Format<Q3K, 110>("Q3_K"), Format<Q4K, 144>("Q4_K"),    Format<Q5K, 176>("Q5_K"),
    Format<Q6K, 210>("Q6_K"), Format<Iq4Nl, 18>("IQ4_NL"), Format<Iq4Xs, 136>("IQ4_XS"),
};

}  // namespace

std::span<const BlockFormat> GgmlBlockFormats() { return kFormats; }

}  // namespace qwen_image

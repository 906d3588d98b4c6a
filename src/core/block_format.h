// How files encode numbers: an encoding is a row of blocks, each a fixed number of bytes that hold a fixed
// number of values. Plain types are blocks of one value; ggml's quantized types share scales within a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qwen_image {

// Where a block keeps its q, for those who would rather read them there than have them unpacked: in bytes, or
// in fours of bits, of which the lower ones of some bytes in a row are as many neighbouring q, and the upper
// ones those that follow.
struct PackedIntegers {
  int bits = 0;    // 4 or 8; 0: in another way
  int offset = 0;  // in bytes
  int apart = 0;   // with 4 bits: from the q of the lower bits of a byte to that of the upper ones, 16 or 32
  uint8_t flip = 0;  // with 8 bits: q = byte ^ flip
};

// An encoding whose values are integers with a scale and a bias for every group: value = scale · q + bias, up
// to the rounding of that sum.
struct IntegerBlocks {
  int group = 0;  // 16, 32 or 64 values; 0: not of this kind
  int bits = 0;   // of the largest q
  void (*unpack)(const std::byte* blocks, int64_t count, uint8_t* q /*[count · values]*/,
                 float* scales /*[count · values / group]*/, float* biases /*the same*/) = nullptr;
  PackedIntegers packed = {};
  void (*read_scales)(const std::byte* blocks, int64_t count, float* scales, float* biases) = nullptr;
};

struct BlockFormat {
  std::string_view name;  // as files spell it: "F32", "F8_E4M3", "Q4_K", …
  int64_t values;         // of a block; a row is whole blocks
  int64_t bytes;          // of a block
  // Decodes `count` blocks, which may be unaligned, to count · values floats.
  void (*decode)(const std::byte* blocks, int64_t count, float* to);
  IntegerBlocks integers = {};
};

// Null for an encoding that is not read here.
const BlockFormat* FindBlockFormat(std::string_view name);

}  // namespace qwen_image

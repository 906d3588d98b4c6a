// How files encode numbers: an encoding is a row of blocks, each a fixed number of bytes that hold a fixed
// number of values. Plain types are blocks of one value; ggml's quantized types share scales within a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qwen_image {

struct BlockFormat {
  std::string_view name;  // as files spell it: "F32", "F8_E4M3", "Q4_K", …
  int64_t values;         // of a block; a row is whole blocks
  int64_t bytes;          // of a block
  // Decodes `count` blocks, which may be unaligned, to count · values floats.
  void (*decode)(const std::byte* blocks, int64_t count, float* to);
};

// Null for an encoding that is not read here.
const BlockFormat* FindBlockFormat(std::string_view name);

}  // namespace qwen_image

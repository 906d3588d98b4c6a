// Rows of integers, packed as files hold them, to the order of a panel: fours of neighbouring depth, those of
// all columns side by side (see Int8Panel). Straight from the file's bytes, in one pass.
#pragma once

#include <cstdint>

#include "kernels/int8/tile.h"

namespace qwen_image {

// Packed rows of the matrix, which are a panel's columns. They may be unaligned, and one may be there twice.
struct PanelRows {
  const uint8_t* rows[kInt8PanelCols];  // from the first integer on
  // A row consists of blocks of `block_depth` integers, `block_bytes` apart.
  int64_t block_depth, block_bytes;
};

// In all of these the depth is whole blocks, a block is whole pieces of 16 bytes, and the result is
// to[depth / 4][kInt8PanelCols][4], aligned to 64 bytes.

// One integer a byte, xor `flip`. With `high`, `to` gets the lower four bits and `high` the upper ones.
void InterleaveBytes(const PanelRows& from, int64_t depth, uint8_t flip, uint8_t* to, uint8_t* high);

// Two integers a byte. `apart` 0: they are neighbours, the first one in the lower four bits; else the upper
// four bits of `apart` bytes (16 or 32) follow behind the lower ones of all of them.
void InterleaveNibbles(const PanelRows& from, int64_t depth, int apart, uint8_t* to);

// [kInt8PanelCols][stride] → [count][kInt8PanelCols]
void TransposeFloats(const float* rows, int64_t stride, int64_t count, float* to);

}  // namespace qwen_image

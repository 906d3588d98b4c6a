// The table of all element types that files may hold: what each format calls them, how large they are, how
// they are decoded. A type is a row of blocks, each a fixed number of bytes that hold a fixed number of
// values. Plain types are blocks of one value; ggml's quantized types share scales within a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace qwen_image {

// Where a block keeps its q, for kernels that read them in place. With 8 bits, q[i] is byte i. With 4 bits,
// runs of `apart` bytes hold 2 · apart values: for i < apart, q[i] is the lower half of byte i of the run,
// and q[apart + i] is its upper half.
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
  DType dtype;
  std::string_view name;  // as safetensors and GGUF spell it: "F32", "F8_E4M3", "Q4_K", …
  int64_t values;         // of a block; a row is whole blocks
  int64_t bytes;          // of a block; 0: ggml gave the type up, and files with it must be converted again
  // Decodes `count` blocks, which may be unaligned, to count · values floats. Null: no weights of this type
  // are computed with.
  void (*decode)(const std::byte* blocks, int64_t count, float* to) = nullptr;
  IntegerBlocks integers = {};
  int ggml = -1;              // GGUF's number of it; -1: GGUF has none
  std::string_view npy = {};  // in a .npy header: "<f4"; empty: NumPy has none
  std::string_view numpy =
      {};                    // what NumPy calls it: "float32"; and "bfloat16"; empty: it cannot be compared
  bool safetensors = false;  // whether safetensors files may hold it
};

const BlockFormat& FormatOf(DType dtype);  // not for kGivenUp, which stands for several

// All four return null if there is none.
const BlockFormat* FindBlockFormat(std::string_view name);  // among those that are decoded
const BlockFormat* FindSafetensorsType(std::string_view dtype);
const BlockFormat* FindNpyType(std::string_view descr);
// More types are known than are decoded: the layout of a file cannot be checked without their sizes.
const BlockFormat* FindGgmlType(uint32_t number);

}  // namespace qwen_image

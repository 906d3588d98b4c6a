// The numbers that GGUF files give to element types, and the sizes of their blocks. More types are known here
// than are decoded (core/block_format.h): the layout of a file cannot be checked without their sizes.
#pragma once

#include <cstdint>
#include <string_view>

namespace qwen_image {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  int64_t values;  // of a block
  int64_t bytes;   // of a block; 0: ggml gave the type up, and files with it are to be made anew
};

// Null for a number that ggml had not given when this was written.
const GgmlType* FindGgmlType(uint32_t number);

}  // namespace qwen_image

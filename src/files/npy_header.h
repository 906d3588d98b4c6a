// The header of a .npy file: element type and shape, checked against the size of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/block_format.h"
#include "core/tensor.h"

namespace qwen_image {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
// Magic, version, length and text of a header have at most so many bytes.
constexpr size_t kMaxNpyHeaderBytes = 65536 + 12;

struct NpyHeader {
  Shape shape;
  const BlockFormat* type = nullptr;  // a plain one
  int64_t count = 0;                  // elements
  size_t data_begin = 0;              // where the elements start in the file; they fill the rest of it
};

// `start`: the first bytes of a file of `file_bytes`: all of them, or at least kMaxNpyHeaderBytes. `where`
// names the file in messages. Throws Error kBadInput.
NpyHeader ParseNpyHeader(std::span<const std::byte> start, uint64_t file_bytes, std::string_view where);

}  // namespace qwen_image

// The header of a .npy file: element type and shape, checked against the size of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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
  bool big_endian = false;            // of elements longer than a byte
  bool fortran_order = false;         // the first axis is the innermost; false where that is no difference

  // Whether the elements lie as ConvertElements reads them.
  bool plain() const { return !big_endian && !fortran_order; }
};

// The elements from `begin` to `begin + count`, in C order and little-endian. `data`: all elements of the
// file.
std::vector<std::byte> PlainElements(const NpyHeader& header, std::span<const std::byte> data, int64_t begin,
                                     int64_t count);

// `start`: the first bytes of a file of `file_bytes`: all of them, or at least kMaxNpyHeaderBytes. `where`
// names the file in messages. Throws Error kBadInput.
NpyHeader ParseNpyHeader(std::span<const std::byte> start, uint64_t file_bytes, std::string_view where);

}  // namespace qwen_image

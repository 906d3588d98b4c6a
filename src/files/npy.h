// NumPy .npy files: floats and integers of every size and bool, in both orders of bytes and of axes, versions
// 1–3. Written as version 1, little-endian, in C order. Python objects are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace qwen_image {

struct NpyArray {
  Shape shape;
  std::string dtype;  // "<f4", "<i8", "|u1", …; of big-endian files the little-endian name
  std::variant<std::vector<float>, std::vector<int64_t>> values;  // floats become float, integers int64_t
};

NpyArray ReadNpy(const std::filesystem::path& path);  // throws Error kBadInput
// The same for bytes in memory; `where` names them in messages.
NpyArray ParseNpy(std::span<const std::byte> bytes, std::string_view where);
Tensor ReadNpyFloat(const std::filesystem::path& path);  // throws unless the file holds floats

std::string EncodeNpy(std::span<const float> values, const Shape& shape);  // the file's bytes
// Written to a temporary name and renamed. Throws Error kCannotWrite.
void WriteNpy(const std::filesystem::path& path, const float* data, const Shape& shape);
void WriteNpy(const std::filesystem::path& path, const int64_t* data, const Shape& shape);
void WriteNpy(const std::filesystem::path& path, const uint8_t* data, const Shape& shape);

}  // namespace qwen_image

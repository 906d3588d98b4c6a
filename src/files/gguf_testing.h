// GGUF files for tests, byte by byte: also such as no writer would write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf_value.h"
#include "files/testing.h"

namespace qwen_image {

inline std::string GgufString(std::string_view text) {
  return LittleEndian(text.size(), 8) + std::string(text);
}

// `elements`: the bytes of all of them.
inline std::string GgufArrayBytes(GgufType type, uint64_t count, std::string_view elements) {
  return LittleEndian(static_cast<uint32_t>(type), 4) + LittleEndian(count, 8) + std::string(elements);
}

struct GgufBytes {
  uint32_t version = 3;
  std::string metadata;
  uint64_t metadata_count = 0;
  std::string tensors;
  uint64_t tensor_count = 0;
  uint64_t alignment = 32;
  std::string data;

  GgufBytes& Value(std::string_view key, uint32_t type, std::string_view bytes) {
    metadata += GgufString(key) + LittleEndian(type, 4) + std::string(bytes);
    ++metadata_count;
    return *this;
  }
  GgufBytes& Value(std::string_view key, GgufType type, std::string_view bytes) {
    return Value(key, static_cast<uint32_t>(type), bytes);
  }

  // `dimensions` in ggml's order, innermost first.
  GgufBytes& Tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                    uint64_t offset) {
    tensors += GgufString(name) + LittleEndian(dimensions.size(), 4);
    for (const uint64_t dimension : dimensions) tensors += LittleEndian(dimension, 8);
    tensors += LittleEndian(type, 4) + LittleEndian(offset, 8);
    ++tensor_count;
    return *this;
  }

  GgufBytes& Data(std::string_view bytes) {
    data += bytes;
    return *this;
  }

  std::string Bytes() const {
    std::string bytes = "GGUF" + LittleEndian(version, 4) + LittleEndian(tensor_count, 8) +
                        LittleEndian(metadata_count, 8) + metadata + tensors;
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return bytes + data;
  }
};

}  // namespace qwen_image

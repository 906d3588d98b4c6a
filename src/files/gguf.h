// GGUF: the files of ggml and llama.cpp. A header, metadata of many types, the tensors' names, shapes and
// types, then their bytes. Versions 2 and 3, little-endian. Everything is checked before use: counts,
// lengths, types, shapes, offsets (aligned, in the file, no overlap).
//
// Tensors have torch's shape, the reverse of ggml's. Where the metadata has comfy.gguf.orig_shape.<tensor>,
// as city96's converter writes it for shapes that ggml cannot hold, the tensor gets that one; its rows may
// then be no whole blocks, only the tensor as a whole is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf_value.h"
#include "files/weight_file.h"

namespace qwen_image {

class GgufFile : public WeightFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);  // throws Error kBadInput

  // metadata() has numbers and booleans as text, and strings. Arrays, which hold the 150,000 words of a
  // tokenizer, are read when they are asked for. Nothing if there is no such key; throws Error kBadInput if
  // its value is of another kind. The strings may be any bytes: the words of a tokenizer can be parts of a
  // character.
  std::optional<std::vector<std::string>> StringArray(std::string_view key) const;
  std::optional<std::vector<int64_t>> IntArray(std::string_view key) const;

 private:
  uint64_t ReadMetadata(uint64_t count, GgufCursor& cursor);  // the alignment
  // The array's start and length, if there is one of elements of this kind.
  const GgufArray* FindArray(std::string_view key, bool (*is_wanted)(GgufType),
                             std::string_view wanted) const;
  void RestoreShape(const std::string& name, StoredTensor& tensor) const;

  std::map<std::string, GgufArray, std::less<>> arrays_;
};

}  // namespace qwen_image

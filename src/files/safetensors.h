// safetensors: an 8-byte header length, a JSON header, then the tensors' bytes. Everything is checked before
// use: lengths, offsets (in the file, no overlap, no gap), dtypes, shape × dtype = span.
#pragma once

#include <filesystem>

#include "files/weight_file.h"

namespace qwen_image {

class SafetensorsFile : public WeightFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // throws Error kBadInput
};

}  // namespace qwen_image

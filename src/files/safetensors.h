// safetensors: an 8-byte header length, a JSON header, then the tensors' bytes. Everything is checked before
// use: lengths, offsets (in the file, no overlap, no gap), dtypes, shape × dtype = span.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "core/dtype.h"
#include "files/weight_file.h"

namespace qwen_image {

class SafetensorsFile : public WeightFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // throws Error kBadInput
};

// Of one element of a dtype as safetensors spells it; 0 if it is unknown.
int64_t SafetensorsDtypeBytes(std::string_view dtype);

// The type for a dtype this program computes with (F32, F16, BF16), else nothing.
std::optional<DType> ComputeDType(std::string_view name);

}  // namespace qwen_image

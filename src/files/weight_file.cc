#include "files/weight_file.h"

#include <cstring>
#include <string_view>

#include "files/gguf.h"
#include "files/safetensors.h"

namespace qwen_image {

std::unique_ptr<WeightFile> OpenWeightFile(const std::filesystem::path& path) {
  constexpr std::string_view kGguf = "GGUF";
  const MappedFile file(path);
  if (file.bytes().size() >= kGguf.size() &&
      std::memcmp(file.bytes().data(), kGguf.data(), kGguf.size()) == 0) {
    return std::make_unique<GgufFile>(path);
  }
  // Its errors name the kinds of files that people have by mistake.
  return std::make_unique<SafetensorsFile>(path);
}

}  // namespace qwen_image

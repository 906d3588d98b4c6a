#include "files/weight_file.h"

#include <cstring>
#include <string_view>

#include "core/fail.h"
#include "files/gguf.h"
#include "files/safetensors.h"

namespace qwen_image {

std::vector<std::string> WeightFile::Divide(const std::string& name,
                                            std::map<std::string, StoredTensor> parts) {
  tensors_.erase(name);
  tensors_.merge(parts);
  std::vector<std::string> taken;
  taken.reserve(parts.size());
  for (const auto& [part, tensor] : parts) taken.push_back(part);
  return taken;
}

std::unique_ptr<WeightFile> OpenWeightFile(const std::filesystem::path& path) {
  constexpr std::string_view kGguf = "GGUF";
  const MappedFile file(path);
  if (file.bytes().size() >= kGguf.size() &&
      std::memcmp(file.bytes().data(), kGguf.data(), kGguf.size()) == 0) {
    return std::make_unique<GgufFile>(path);
  }
  try {
    return std::make_unique<SafetensorsFile>(path);
  } catch (const Error& error) {  // which names the kinds of files that people have by mistake
    if (error.kind() != ErrorKind::kBadInput || path.extension() != ".gguf") throw;
    Fail(ErrorKind::kBadInput, "{} (it has the name of a GGUF file, but does not begin with \"GGUF\")",
         error.message());
  }
}

}  // namespace qwen_image

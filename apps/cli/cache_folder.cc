#include "cache_folder.h"

namespace qwen_image {

std::optional<std::filesystem::path> PromptCacheFolder(const EnvironmentReader& environment) {
  const std::filesystem::path ours = "qwen-image/prompts";
  const auto cache = environment("XDG_CACHE_HOME");
  // The XDG specification wants relative paths to be ignored.
  if (cache && std::filesystem::path(*cache).is_absolute()) return *cache / ours;
  if (const auto home = environment("HOME")) return *home / std::filesystem::path(".cache") / ours;
  return std::nullopt;
}

}  // namespace qwen_image

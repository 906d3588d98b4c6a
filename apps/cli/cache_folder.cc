#include "cache_folder.h"

namespace qwen_image::cli {
namespace {

namespace fs = std::filesystem;

// The XDG specification wants relative paths to be ignored.
std::optional<fs::path> UserFolder(const hub::EnvironmentReader& environment, const char* variable,
                                   const char* in_home) {
  const auto folder = environment(variable);
  if (folder && fs::path(*folder).is_absolute()) return *folder;
  if (const auto home = environment("HOME")) return fs::path(*home) / in_home;
  return std::nullopt;
}

}  // namespace

std::optional<fs::path> PromptCacheFolder(const hub::EnvironmentReader& environment) {
  const auto folder = UserFolder(environment, "XDG_CACHE_HOME", ".cache");
  return folder ? std::optional(*folder / "qwen-image/prompts") : std::nullopt;
}

std::optional<fs::path> DataFolder(const std::string& name, const hub::EnvironmentReader& environment) {
  const auto folder = UserFolder(environment, "XDG_DATA_HOME", ".local/share");
  return folder ? std::optional(*folder / "qwen-image" / name) : std::nullopt;
}

}  // namespace qwen_image::cli

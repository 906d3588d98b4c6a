// The environment variables that huggingface_hub, the Python package, goes by.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace qwen_image::hub {

// The value of a variable; nothing if it is not set, or empty.
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> ProcessEnvironment(const char* name);

// HF_HUB_CACHE, or HUGGINGFACE_HUB_CACHE, or hub in HF_HOME, or huggingface/hub in XDG_CACHE_HOME or
// ~/.cache. Throws Error kUsage if not even HOME is known.
std::filesystem::path CacheFolder(const EnvironmentReader& environment = ProcessEnvironment);

struct Server {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token;                                // empty: none
};

// HF_ENDPOINT; HF_TOKEN, or what `hf auth login` left in HF_HOME/token (HF_TOKEN_PATH). Throws Error kUsage
// for values that cannot be used, and if HF_HUB_OFFLINE forbids to connect.
Server ServerFrom(const EnvironmentReader& environment = ProcessEnvironment);

}  // namespace qwen_image::hub

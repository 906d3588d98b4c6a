// Where this program may keep what it can do without.
#pragma once

#include <filesystem>
#include <optional>

#include "hub/hub_environment.h"

namespace qwen_image {

// qwen-image/prompts in XDG_CACHE_HOME or ~/.cache; nothing if neither is known.
std::optional<std::filesystem::path> PromptCacheFolder(
    const EnvironmentReader& environment = ProcessEnvironment);

}  // namespace qwen_image

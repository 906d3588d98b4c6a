// Where this program keeps things.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/hub_environment.h"

namespace qwen_image {

// What it can do without: qwen-image/prompts in XDG_CACHE_HOME or ~/.cache; nothing if neither is known.
std::optional<std::filesystem::path> PromptCacheFolder(
    const EnvironmentReader& environment = ProcessEnvironment);

// qwen-image/NAME in XDG_DATA_HOME or ~/.local/share: what a user would miss.
std::optional<std::filesystem::path> DataFolder(const std::string& name,
                                                const EnvironmentReader& environment = ProcessEnvironment);

}  // namespace qwen_image

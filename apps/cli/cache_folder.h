// Where this program keeps things.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/environment.h"

namespace qwen_image::cli {

// What it can do without: qwen-image/prompts in XDG_CACHE_HOME or ~/.cache; nothing if neither is known.
std::optional<std::filesystem::path> PromptCacheFolder(
    const hub::EnvironmentReader& environment = hub::ProcessEnvironment);

// qwen-image/NAME in XDG_DATA_HOME or ~/.local/share: what a user would miss.
std::optional<std::filesystem::path> DataFolder(
    const std::string& name, const hub::EnvironmentReader& environment = hub::ProcessEnvironment);

}  // namespace qwen_image::cli

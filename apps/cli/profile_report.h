// What takes how long, as a file for programs and as a table for people.
#pragma once

#include <filesystem>
#include <string>

#include "core/profile.h"
#include "files/json.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// Throws Error kUsage where the device is not the CPU, whose operations alone are counted.
void CheckCanBeProfiled(const Pipeline& pipeline);
Json ProfileJson(const Profile& profile);  // microseconds, by component and operation
void WriteProfile(const std::filesystem::path& path, const Profile& profile);  // throws Error kCannotWrite
// The transformer's by step.
std::string ProfileText(const Profile& profile, int64_t steps);

}  // namespace qwen_image::cli

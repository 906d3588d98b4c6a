// Paths from untrusted files.
#pragma once

#include <algorithm>
#include <filesystem>

namespace qwen_image {

// True for a path that cannot lead out of the folder it is appended to.
inline bool StaysInside(const std::filesystem::path& path) {
  return !path.empty() && !path.is_absolute() &&
         std::none_of(path.begin(), path.end(),
                      [](const std::filesystem::path& part) { return part == ".."; });
}

}  // namespace qwen_image

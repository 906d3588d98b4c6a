// Questions about paths that never throw: what cannot be looked at is not there.
#pragma once

#include <filesystem>

namespace qwen_image {

inline bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

inline bool IsFolder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace qwen_image

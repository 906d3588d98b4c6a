// ScratchFolder: a new folder for what is needed for a while, gone at the end with all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "core/fail.h"

namespace qwen_image {

class ScratchFolder {
 public:
  // Its name begins with `prefix`. Throws Error kCannotWrite.
  ScratchFolder(const std::filesystem::path& parent, std::string_view prefix) {
    std::string name = (parent / prefix).string() + "XXXXXX";
    if (!mkdtemp(name.data()))
      Fail(ErrorKind::kCannotWrite, "cannot make a folder in {}: {}", parent.string(),
           std::generic_category().message(errno));
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace qwen_image

// What a report may not tell: where files lie on the user's disk, which also says who the user is.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "files/json.h"
#include "qwen_image/model_files.h"

namespace qwen_image::prove {

// Made absolute, so that messages about them name nothing but absolute paths.
std::filesystem::path AbsolutePath(const std::filesystem::path& path);
ModelFiles AbsoluteFiles(const ModelFiles& files);

class Cleaner {
 public:
  // Messages may tell of these files. `folders`: what else they may name.
  Cleaner(const ModelFiles& files, const std::vector<std::filesystem::path>& folders);

  // The model's folder becomes "MODEL"; of other files the name stays; of all other absolute paths nothing.
  std::string Clean(const std::string& text) const;
  // Every text in it but the keys.
  void Clean(Json& json) const;

 private:
  void Know(const std::filesystem::path& path, const std::string& instead);

  std::vector<std::pair<std::string, std::string>> known_;  // the longest first
};

}  // namespace qwen_image::prove

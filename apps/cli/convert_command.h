// qwen-image convert: a model in any form that can be read, written anew as a diffusers folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"
#include "qwen_image/model_files.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct ConvertCommandOptions {
  std::filesystem::path source;
  ModelFiles files;
  std::filesystem::path output;
  std::string to;
  int group_size = 64;
  std::vector<std::string> only;
  std::vector<std::string> rules;
  double shard_gigabytes = 5;
  int threads = 0;
  bool overwrite = false;
  bool json = false;
  bool quiet = false;
};

// Declares the options of `convert`; they are filled in when the app parses.
void AddConvertOptions(CLI::App& command, ConvertCommandOptions& options);

int RunConvert(const ConvertCommandOptions& options, const CancelFlag& cancel);  // throws Error

}  // namespace qwen_image

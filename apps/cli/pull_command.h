// qwen-image pull: downloads a model from Hugging Face.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct PullCommandOptions {
  std::string repo;
  std::string revision;
  std::vector<std::string> only, include;
  std::filesystem::path cache_folder;
  int parallel = 3;
  bool quiet = false;
  bool json = false;
};

// Declares the options of `pull`; they are filled in when the app parses.
void AddPullOptions(CLI::App& command, PullCommandOptions& options);

// Returns the exit code. Throws Error.
int RunPull(const PullCommandOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image

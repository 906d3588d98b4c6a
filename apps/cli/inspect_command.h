// qwen-image inspect: the contents of weight files, what is unusual about them, and how two of them differ.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct InspectCommandOptions {
  std::filesystem::path path, other;
  std::vector<std::string> filters;
  std::string sort;
  std::optional<size_t> top;
  double tolerance = 0;
  int threads = 0;
  bool full = false;
  bool statistics = true;
  bool verify = false;
  bool json = false;
  bool quiet = false;
};

// Declares the options of `inspect`; they are filled in when the app parses.
void AddInspectOptions(CLI::App& command, InspectCommandOptions& options);

// Returns the exit code: 0, or 1 if something is surely broken or the two differ. Throws Error.
int RunInspect(const InspectCommandOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image

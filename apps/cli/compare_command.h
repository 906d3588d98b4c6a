// `qwen-image compare REF RUN`: two runs, folders or files of tensors, or two pictures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct CompareCommandOptions {
  std::filesystem::path ref, run;
  std::filesystem::path map;
  std::filesystem::path json, junit, report;  // "-" for `json`: to stdout
  std::optional<double> atol, rtol;
  double floor_factor = 2;
  bool attribute = false;
  std::filesystem::path isolated;
  std::vector<std::string> only;
  int64_t worst = 1;
  bool all = false;
  bool force = false;
  bool quiet = false;
  std::string color = "auto";
};

void AddCompareOptions(CLI::App& command, CompareCommandOptions& options);

// Returns the exit code: 0 passed, 1 failed. Throws Error kUsage for runs with different settings.
int RunCompare(const CompareCommandOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image

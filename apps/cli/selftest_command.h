// qwen-image selftest: proves that a device computes what the CPU computes.
#pragma once

#include <optional>
#include <string>

#include "qwen_image/cancel.h"
#include "qwen_image/model_files.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct SelftestOptions {
  ModelFiles files;
  std::string device, precision;
  std::string size;
  std::optional<int64_t> steps;
  int threads = 0;
  bool json = false, quiet = false;
};

void AddSelftestOptions(CLI::App& command, SelftestOptions& options);

// Returns the exit code: 0 if everything is within its limits, 1 if not. Throws Error, kUsage if there is
// nothing to compare with.
int RunSelftest(const SelftestOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image

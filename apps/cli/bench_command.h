// qwen-image bench: how long pictures take on a device.
#pragma once

#include <string>
#include <vector>

#include "qwen_image/cancel.h"
#include "qwen_image/model_files.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct BenchOptions {
  ModelFiles files;
  std::string device, precision;
  std::vector<std::string> sizes;
  std::vector<int64_t> steps;
  double cfg = 1;
  int threads = 0;
  bool ignore_memory = false, json = false, quiet = false;
};

void AddBenchOptions(CLI::App& command, BenchOptions& options);
int RunBench(const BenchOptions& options, const CancelFlag& cancel);  // returns the exit code; throws Error

}  // namespace qwen_image

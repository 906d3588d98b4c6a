#pragma once

#include "options.h"
#include "qwen_image/cancel.h"

namespace qwen_image {

struct BisectOptions {
  std::string reference;        // a run's folder, or the name of a run in --artifacts
  std::filesystem::path repro;  // empty: beside the reference
  bool no_repro = false;
  GenerateOptions generate;  // also --json and --quiet
};

void AddBisectOptions(CLI::App& command, BisectOptions& options);

// Finds the first operation that leaves the reference. Returns the exit code; throws Error.
int RunBisect(BisectOptions options, const DebugOptions& debug, const CancelFlag& cancel);

}  // namespace qwen_image

// The options before the command: what is recorded of a run, and compared.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "command.h"

namespace qwen_image::cli {

struct DebugOptions {
  std::string run_id;  // empty: off
  std::filesystem::path artifacts = "debug_artifacts";
  std::string checkpoints;  // empty: not said
  std::vector<std::string> substitute;
  std::string only;             // a component; empty: the whole pipeline
  std::filesystem::path trace;  // empty: off
  bool list_checkpoints = false;

  std::string Checkpoints() const { return checkpoints.empty() ? "blocks" : checkpoints; }
};

OptionList DebugOptionList(DebugOptions& options);

}  // namespace qwen_image::cli

// qwen-image inspect: what is in a file or folder of weights, and what is unusual about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inspect/inspected.h"
#include "inspect/scan.h"

namespace qwen_image::inspect {

struct InspectOptions {
  std::vector<std::string> filters;               // globs; a tensor that matches any is looked at; empty: all
  bool statistics = true;                         // false: headers only
  int64_t read_again_bytes = int64_t{256} << 20;  // of the second reading; 0: none
};

// Throws Error: kBadInput if nothing at `path` can be read or no tensor matches, kInterrupted.
Inspection InspectWeights(const std::filesystem::path& path, const InspectOptions& options,
                          const ScanContext& context);

// Opens and resolves quantized tensors; values are not read. What InspectWeights and DiffWeights begin with.
std::vector<InspectedComponent> OpenForInspection(const std::filesystem::path& path,
                                                  const std::vector<std::string>& filters);

}  // namespace qwen_image::inspect

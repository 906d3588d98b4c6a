// --machines: the same command, started on several machines that draw together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.h"

namespace qwen_image::cli {

Option MachinesOption(std::vector<std::string>& machines, const char* group = "",
                      const char* help =
                          "Draw each picture on these machines together: names separated by "
                          "commas, this one's first (needs ssh and Open MPI; see docs/machines.md)");

Option SplitOption(std::optional<Split>& split, const char* group = "");

// Runs the command on the machines that were named, and returns its exit code; 6 if one of them failed.
// Nothing if none were named, or if this is the command that was started there. Throws Error kUsage.
std::optional<int> RunOnMachines(const std::vector<std::string>& machines, const Session& session);

}  // namespace qwen_image::cli

// How and with how much of the machine a model is computed: the options of all commands that draw.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

struct MachineOptions {
  std::optional<Precision> precision;
  std::optional<Device> device;
  int threads = 0;
  bool ignore_memory = false;
  std::vector<std::string> machines;  // that draw together; empty: this one alone
  std::optional<Split> split;         // of the work among machines

  // Where it was not said: exact on mlx-cpu, which is there for comparisons, else fast.
  Precision PrecisionInUse() const;
  PipelineOptions ForPipeline(const std::filesystem::path& prompt_cache = {},
                              std::shared_ptr<Machines> machines = nullptr) const;
};

Option DeviceOption(MachineOptions& options, const char* group = "");
// Takes effect as it is read: the choice is the process's.
Option InstructionSetOption(const char* group = "");
Option ThreadsOption(int& threads, const char* group = "",
                     const char* help = "Threads (default: all processors)");
Option IgnoreMemoryOption(bool& ignore, const char* group = "");
// All of them, in the group "Machine".
OptionList MachineOptionList(MachineOptions& options);

}  // namespace qwen_image::cli

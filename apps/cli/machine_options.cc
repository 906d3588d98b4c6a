#include "machine_options.h"

#include <utility>

#include "core/threads.h"
#include "many_machines.h"
#include "qwen_image/instruction_set.h"

namespace qwen_image::cli {

Precision MachineOptions::PrecisionInUse() const {
  return precision.value_or(device == Device::kMlxCpu ? Precision::kExact : Precision::kFast);
}

PipelineOptions MachineOptions::ForPipeline(const std::filesystem::path& prompt_cache,
                                            std::shared_ptr<Machines> machines) const {
  return {.threads = threads,
          .check_memory = !ignore_memory,
          .precision = PrecisionInUse(),
          .device = device.value_or(Device::kAuto),
          .prompt_cache = prompt_cache,
          .machines = std::move(machines),
          .split = split.value_or(Split::kSequence)};
}

Option DeviceOption(MachineOptions& o, const char* group) {
  return NamedOption(
      "--device", o.device,
      "Where to compute: cpu (this program's own kernels), gpu (by MLX: Metal or CUDA) or mlx-cpu "
      "(MLX on the CPU, slow, for comparisons); default: auto, gpu where there is one, else cpu; see "
      "qwen-image devices",
      group);
}

Option InstructionSetOption(const char* group) {
  std::vector<std::string> names = InstructionSets();
  names.insert(names.begin(), "auto");
  return {.names = "--instruction-set",
          .target = [](const std::string& name) { UseInstructionSet(name); },
          .help = "Use no better one on the CPU, to compare machines (default: auto, all that there is)",
          .group = group,
          .one_of = std::move(names)};
}

Option ThreadsOption(int& threads, const char* group, const char* help) {
  return {
      .names = "-t,--threads", .target = &threads, .help = help, .group = group, .range = {{1, kMaxThreads}}};
}

Option IgnoreMemoryOption(bool& ignore, const char* group) {
  return {.names = "--ignore-memory",
          .target = &ignore,
          .help = "Try even if the model does not seem to fit in memory",
          .group = group};
}

OptionList MachineOptionList(MachineOptions& o) {
  const char* group = "Machine";
  return {NamedOption(
              "--precision", o.precision,
              "How layers with quantized weights are computed. fast (the default): with inputs of 8 bits, or "
              "16 where 8 are too few, and so is attention between them; exact: in fp32, several times "
              "slower. Other layers are always exact",
              group),
          DeviceOption(o, group),
          InstructionSetOption(group),
          ThreadsOption(o.threads, group),
          IgnoreMemoryOption(o.ignore_memory, group),
          MachinesOption(o.machines, group),
          SplitOption(o.split, group)};
}

}  // namespace qwen_image::cli

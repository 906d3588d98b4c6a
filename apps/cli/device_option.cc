#include "device_option.h"

#include <CLI/CLI.hpp>

namespace qwen_image {

CLI::Option* AddDeviceOption(CLI::App& command, std::string& device) {
  return command
      .add_option(
          "--device", device,
          "Where to compute: cpu (this program's own kernels), gpu (by MLX: Metal or CUDA) or mlx-cpu "
          "(MLX on the CPU, slow, for comparisons); default: gpu where there is one, else cpu; see "
          "qwen-image devices")
      ->check(CLI::IsMember({"cpu", "gpu", "mlx-cpu"}));
}

Device DeviceOf(const std::string& device) {
  return device == "cpu"       ? Device::kCpu
         : device == "gpu"     ? Device::kGpu
         : device == "mlx-cpu" ? Device::kMlxCpu
                               : Device::kAuto;
}

Precision PrecisionOf(const std::string& precision, const std::string& device) {
  if (precision.empty()) return device == "mlx-cpu" ? Precision::kExact : Precision::kFast;
  return precision == "exact" ? Precision::kExact : Precision::kFast;
}

}  // namespace qwen_image

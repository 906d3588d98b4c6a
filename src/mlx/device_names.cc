#include "core/fail.h"
#include "core/threads.h"
#include "kernels/kernels.h"
#include "mlx/devices.h"
#include "weights/memory.h"

namespace qwen_image {

std::string_view NameOf(Device device) {
  switch (device) {
    case Device::kAuto:
      return "auto";
    case Device::kCpu:
      return "cpu";
    case Device::kGpu:
      return "gpu";
    case Device::kMlxCpu:
      return "mlx-cpu";
  }
  return "?";
}

DeviceInfo CpuInfo() {
  const std::string kernels =
      fmt::format("this program's own kernels ({}), {} threads", InstructionSet(), DefaultThreadCount());
  return {Device::kCpu, true, kernels, AvailableMemory()};
}

Device ResolveDevice(Device asked) {
  for (const DeviceInfo& info : ListDevices()) {
    if (asked == Device::kAuto && info.available && info.device != Device::kMlxCpu) return info.device;
    if (asked != info.device) continue;
    if (info.available) return asked;
    Fail(ErrorKind::kUsage, "there is no device {}: {}", NameOf(asked), info.description);
  }
  Fail(ErrorKind::kInternal, "no device {}", NameOf(asked));
}

}  // namespace qwen_image

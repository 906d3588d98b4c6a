#include "device/available.h"

#include "core/fail.h"
#include "core/memory.h"
#include "core/threads.h"
#include "kernels/interface.h"

namespace qwen_image::device {

DeviceInfo CpuInfo() {
  const std::string kernels =
      fmt::format("this program's own kernels ({}), {} threads", InstructionSet(), DefaultThreadCount());
  return {Device::kCpu, true, kernels, AvailableMemory()};
}

void CheckDeviceMemory(const DeviceChoice& choice) {
  if (choice.device == Device::kCpu) return;
  for (const DeviceInfo& info : ListDevices()) {
    if (info.device != choice.device || info.memory_bytes == 0) continue;
    if (choice.largest_stage_bytes <= info.memory_bytes) continue;
    constexpr double kGigabyte = 1e9;
    Fail(ErrorKind::kOutOfMemory,
         "the largest part of the model takes {:.1f} GB on the device {}, which has {:.1f} GB for it; use "
         "smaller "
         "weights (MLX's 4 bits), or another device",
         static_cast<double>(choice.largest_stage_bytes) / kGigabyte, NameOf(choice.device),
         static_cast<double>(info.memory_bytes) / kGigabyte);
  }
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

}  // namespace qwen_image::device

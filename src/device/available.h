// Which devices there are, and how a component computes on one. Without MLX (the default) no_mlx.cc stands in
// for mlx.cc: there is the CPU, and everything else is an error that says how to build with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/interface.h"
#include "options/names.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::device {

struct DeviceInfo {
  Device device = Device::kCpu;
  bool available = true;
  std::string description;   // its name, or why it is not there
  int64_t memory_bytes = 0;  // that it may use; 0: unknown
};

DeviceInfo CpuInfo();

// All that this build knows; the first available one of gpu and cpu is the default.
std::vector<DeviceInfo> ListDevices();

// What kAuto means on this machine. Throws Error kUsage for a device that is not there.
Device ResolveDevice(Device asked);

// The most that MLX held at once since the last reset, in bytes; 0 without MLX.
int64_t PeakDeviceMemory();
void ResetPeakDeviceMemory();

struct DeviceChoice {
  Device device = Device::kCpu;
  Precision precision = Precision::kExact;
  // Of the weights of all components: what fits into the device's memory as a whole is copied once and kept;
  // else every stage's weights go after use.
  int64_t total_bytes = 0;
  int64_t largest_stage_bytes = 0;
};
// Throws Error kOutOfMemory if the weights of a stage are more than the device's memory, where that is known.
void CheckDeviceMemory(const DeviceChoice& choice);
// For one component, which stays where it is from its first pass on.
std::shared_ptr<Backend> MakeBackend(const DeviceChoice& choice);

}  // namespace qwen_image::device

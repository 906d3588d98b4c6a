// In place of devices.cc in a build without MLX.
#include "core/fail.h"
#include "mlx/devices.h"

namespace qwen_image {
namespace {

constexpr const char* kNoMlx =
    "this program was built without MLX; build one with ./run build --mlx (or cmake -DQWEN_IMAGE_MLX=ON)";

void MustBeCpu(const DeviceChoice& choice) {
  if (choice.device != Device::kCpu)
    Fail(ErrorKind::kUsage, "there is no device {}: {}", NameOf(choice.device), kNoMlx);
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  return {{Device::kGpu, false, kNoMlx}, CpuInfo(), {Device::kMlxCpu, false, kNoMlx}};
}

int64_t PeakDeviceMemory() { return 0; }
void ResetPeakDeviceMemory() {}

void PlaceOnDevice(TextEncoder&, const DeviceChoice& choice) { MustBeCpu(choice); }
void PlaceOnDevice(VisionEncoder&, const DeviceChoice& choice) { MustBeCpu(choice); }
void PlaceOnDevice(Transformer&, const DeviceChoice& choice) { MustBeCpu(choice); }
void PlaceOnDevice(Vae&, const DeviceChoice& choice) { MustBeCpu(choice); }

}  // namespace qwen_image

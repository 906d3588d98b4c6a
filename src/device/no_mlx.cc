// In place of mlx.cc in a build without MLX.
#include "core/fail.h"
#include "device/available.h"
#include "split/backend.h"

namespace qwen_image::device {
namespace {

constexpr const char* kNoMlx =
    "this program was built without MLX; build one with ./run build --mlx (or cmake -DQWEN_IMAGE_MLX=ON)";

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  return {{Device::kGpu, false, kNoMlx}, CpuInfo(), {Device::kMlxCpu, false, kNoMlx}};
}

int64_t PeakDeviceMemory() { return 0; }
void ResetPeakDeviceMemory() {}

std::shared_ptr<Backend> MakeBackend(const DeviceChoice& choice) {
  if (choice.device != Device::kCpu)
    Fail(ErrorKind::kUsage, "there is no device {}: {}", NameOf(choice.device), kNoMlx);
  return split::SplitBackend(CpuBackend());
}

}  // namespace qwen_image::device

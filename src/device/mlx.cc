// Which devices MLX has here.
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "core/fail.h"
#include "device/available.h"
#include "mlx/backend.h"
#include "split/backend.h"

namespace qwen_image::device {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGigabyte = int64_t{1} << 30;

mx::Device OnMlx(Device device) { return device == Device::kGpu ? mx::Device::gpu : mx::Device::cpu; }

std::string TextOf(const mx::Device& device, const std::string& key) {
  const auto& info = mx::device_info(device);
  const auto found = info.find(key);
  const std::string* text = found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text ? *text : "";
}

// The first of these that MLX knows: Metal and CUDA call it by different names.
int64_t BytesOf(const mx::Device& device, std::initializer_list<const char*> keys) {
  const auto& info = mx::device_info(device);
  for (const char* key : keys) {
    const auto found = info.find(key);
    const size_t* bytes = found == info.end() ? nullptr : std::get_if<size_t>(&found->second);
    if (bytes && *bytes > 0) return static_cast<int64_t>(*bytes);
  }
  return 0;
}

int64_t MemoryOf(const mx::Device& device) {
  return BytesOf(device, {"max_recommended_working_set_size", "total_memory", "memory_size"});
}

DeviceInfo GpuInfo() {
  if (!mx::is_available(mx::Device::gpu)) {
    return {Device::kGpu, false,
            fmt::format("MLX {} finds no GPU here (Metal or CUDA; its package for CUDA is mlx[cuda])",
                        mx::version())};
  }
  const mx::Device gpu = mx::Device::gpu;
  const std::string name = TextOf(gpu, "device_name");
  return {Device::kGpu, true, fmt::format("{}, by MLX {}", name.empty() ? "GPU" : name, mx::version()),
          MemoryOf(gpu)};
}

// For the whole process: how much freed memory MLX may keep for later, and how much may be pinned.
void SetLimits(const mx::Device& device) {
  // On newer GPUs MLX would round the inputs of fp32 products to 10 bits, and "exact" would not be. It looks
  // when it first multiplies. Who sets the variable decides otherwise.
  setenv("MLX_ENABLE_TF32", "0", 0);
  mx::set_cache_limit(static_cast<size_t>(2 * kGigabyte));
  const int64_t working_set = BytesOf(device, {"max_recommended_working_set_size"});
  if (device == mx::Device::gpu && working_set > 0) mx::set_wired_limit(static_cast<size_t>(working_set));
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  return {GpuInfo(),
          CpuInfo(),
          {Device::kMlxCpu, true, fmt::format("the CPU by MLX {}: for comparisons, slow", mx::version())}};
}

int64_t PeakDeviceMemory() { return static_cast<int64_t>(mx::get_peak_memory()); }
void ResetPeakDeviceMemory() { mx::reset_peak_memory(); }

std::shared_ptr<Backend> MakeBackend(const DeviceChoice& choice) {
  if (choice.device == Device::kCpu) return split::SplitBackend(CpuBackend());
  const mx::Device device = OnMlx(choice.device);
  return on_mlx::RunOn(device, [&] {
    SetLimits(device);
    const int64_t memory = MemoryOf(device);
    return std::make_shared<on_mlx::MlxBackend>(
        on_mlx::Placement{.device = device,
                          .keep_weights = memory > 0 && choice.total_bytes < memory / 2,
                          .compile = choice.device == Device::kGpu});
  });
}

}  // namespace qwen_image::device

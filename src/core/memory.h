// How much memory this process may take before something kills it or refuses: in all, and still.
#pragma once

#include <cstdint>
#include <filesystem>

namespace qwen_image {

// The least of: what the machine has available, what the control groups (containers, systemd) of this process
// leave, and what the limits on address space and data (ulimit -v, -d) leave. In bytes; INT64_MAX if nothing
// is known. Linux only. `root` is where /proc and /sys are looked for: tests give a folder of their own.
int64_t AvailableMemory(const std::filesystem::path& root = "/");

// The same of what there is in all, whoever uses it now.
int64_t TotalMemory(const std::filesystem::path& root = "/");

// What this process holds, mapped weights included, and the most it ever held; 0 where it is not known. Not
// getrusage(): its figure begins with what the process that started this one had.
struct MemoryUse {
  int64_t resident = 0, peak = 0;
};
MemoryUse MemoryInUse(const std::filesystem::path& root = "/");

}  // namespace qwen_image

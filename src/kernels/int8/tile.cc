#include "kernels/int8/tile.h"

#include <atomic>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace qwen_image {
namespace {

#if defined(__x86_64__)
// Not among the names that all compilers' __builtin_cpu_supports know.
bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1);
}

void AddKernels(std::vector<const Int8Kernel*>& kernels) {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (avx512) kernels.push_back(&kInt8Avx512Vnni);
  if (avx512) kernels.push_back(&kInt8Avx512Vnni256);
  if (HasAvxVnni()) kernels.push_back(&kInt8AvxVnni);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels.push_back(&kInt8Avx2);
}
#elif defined(__aarch64__) && defined(__linux__)
void AddKernels(std::vector<const Int8Kernel*>& kernels) {
  if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) kernels.push_back(&kInt8NeonI8mm);
  if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) kernels.push_back(&kInt8NeonDot);
}
#elif defined(__aarch64__)
void AddKernels(std::vector<const Int8Kernel*>& kernels) {
  kernels.push_back(&kInt8NeonDot);
}  // Apple's all have it
#else
void AddKernels(std::vector<const Int8Kernel*>&) {}
#endif

std::atomic<const Int8Kernel*> chosen = nullptr;

}  // namespace

std::span<const Int8Kernel* const> Int8Kernels() {
  static const std::vector<const Int8Kernel*> kernels = [] {
    std::vector<const Int8Kernel*> found;
    AddKernels(found);
    found.push_back(&kInt8Portable);
    return found;
  }();
  return kernels;
}

const Int8Kernel& ChosenInt8Kernel() {
  const Int8Kernel* const kernel = chosen.load();
  return kernel ? *kernel : *Int8Kernels().front();
}

void ChooseInt8Kernel(const Int8Kernel* kernel) { chosen.store(kernel); }

}  // namespace qwen_image

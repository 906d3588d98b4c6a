// The fuzzer: libFuzzer brings main(), QWEN_IMAGE_FUZZ_TARGET names the target. One program for all of them,
// as linking takes longer than compiling a target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "targets.h"

namespace {
const qwen_image::FuzzTarget* target = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("QWEN_IMAGE_FUZZ_TARGET");
  target = name ? qwen_image::FindTarget(name) : nullptr;
  if (!target) {
    std::fprintf(stderr, "fuzz: QWEN_IMAGE_FUZZ_TARGET is %s; known are:", name ? name : "not set");
    for (const qwen_image::FuzzTarget& known : qwen_image::kFuzzTargets)
      std::fprintf(stderr, " %s", known.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  qwen_image::RunTarget(*target, {reinterpret_cast<const char*>(data), size});
  return 0;
}

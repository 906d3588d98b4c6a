#include "qwen_image/instruction_set.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/fail.h"
#include "hwy/targets.h"
#include "kernels/int8/tile.h"

namespace qwen_image {
namespace {

// Highway's kernels and the 8-bit tile are chosen apart from each other; a name stands for both.
struct Choice {
  const char* name;
  int64_t target;  // Highway's
  const Int8Kernel* int8;
};

constexpr Choice kChoices[] = {
#if defined(__x86_64__)
    {"avx512-vnni", HWY_AVX3, &kInt8Avx512Vnni},
    {"avx512", HWY_AVX3, &kInt8Avx2},
    {"avx-vnni", HWY_AVX2, &kInt8AvxVnni},
    {"avx2", HWY_AVX2, &kInt8Avx2},
    {"sse4", HWY_SSE4, &kInt8Portable},
#elif defined(__aarch64__)
    {"neon-i8mm", HWY_NEON, &kInt8NeonI8mm},
    {"neon-dotprod", HWY_NEON, &kInt8NeonDot},
    {"neon", HWY_NEON, &kInt8Portable},
#endif
#if HWY_STATIC_TARGET == HWY_SCALAR || HWY_STATIC_TARGET == HWY_EMU128
    {"portable", HWY_STATIC_TARGET, &kInt8Portable},
#endif
};

// Asked for once, before anything is restricted: afterwards Highway names what is left.
const std::vector<Choice>& ChoicesHere() {
  static const std::vector<Choice> here = [] {
    const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
    const auto kernels = Int8Kernels();
    std::vector<Choice> found;
    for (const Choice& choice : kChoices) {
      if (std::find(targets.begin(), targets.end(), choice.target) != targets.end() &&
          std::find(kernels.begin(), kernels.end(), choice.int8) != kernels.end())
        found.push_back(choice);
    }
    return found;
  }();
  return here;
}

const Choice* in_use = nullptr;  // null: nothing was asked for yet

void Use(int64_t disabled_targets, const Int8Kernel* int8) {
  hwy::DisableTargets(disabled_targets);
  ChooseInt8Kernel(int8);
}

}  // namespace

std::vector<std::string> InstructionSets() {
  std::vector<std::string> names;
  for (const Choice& choice : ChoicesHere()) names.emplace_back(choice.name);
  return names;
}

void UseInstructionSet(const std::string& name) {
  const std::vector<Choice>& here = ChoicesHere();
  if (name == "auto") {
    in_use = here.data();
    return Use(0, nullptr);
  }
  for (const Choice& choice : here) {
    if (name != choice.name) continue;
    in_use = &choice;
    return Use(choice.target - 1, choice.int8);  // the better a target, the lower its bit
  }
  Fail(ErrorKind::kUsage, "this machine and build cannot run the instruction set '{}'; they can run auto, {}",
       name, fmt::join(InstructionSets(), ", "));
}

std::string InstructionSetInUse() { return in_use ? in_use->name : ChoicesHere().front().name; }

}  // namespace qwen_image

// Which of its kernels the library computes with.
#pragma once

#include <string>
#include <vector>

#include "qwen_image/export.h"

namespace qwen_image {

// What this machine and build have kernels for, the fastest first: for example avx512-vnni, avx512, avx2,
// sse4, portable.
QWEN_IMAGE_API std::vector<std::string> InstructionSets();

// Kernels use nothing better than this one; "auto", the default: all there is. Throws ErrorKind::kUsage for a
// name that is not among InstructionSets(). The kernels are the process's, not a pipeline's, and so is the
// choice: make it while nothing is drawn. The last bits of a result may follow it.
QWEN_IMAGE_API void UseInstructionSet(const std::string& name);

// The one in use; never "auto".
QWEN_IMAGE_API std::string InstructionSetInUse();

}  // namespace qwen_image

// For programs whose model files may become shorter while they are in use.
#pragma once

#include "qwen_image/export.h"

namespace qwen_image {

// Handles SIGBUS from now on, in the whole process, so that a mapped file that was cut gives an Error
// instead of ending the process; a fault outside of mapped files goes to the handler that was there before. A
// program decides this, not the library. More than one call does no harm.
QWEN_IMAGE_API void InstallTruncationGuard();

}  // namespace qwen_image

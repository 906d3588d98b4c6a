#pragma once

#include "options.h"
#include "qwen_image/cancel.h"

namespace qwen_image {

// Draws, or edits, what the options ask for. Returns the exit code; throws Error.
int RunGenerate(GenerateOptions options, const DebugOptions& debug, const CancelFlag& cancel);

}  // namespace qwen_image

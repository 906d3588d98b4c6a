#pragma once

#include "debug_options.h"
#include "generate_options.h"
#include "qwen_image/cancel.h"

namespace qwen_image::cli {

// --list-checkpoints: prints the name of every checkpoint that a run with these options would pass, in order.
// Returns the exit code; throws Error.
int ListCheckpoints(const GenerateOptions& options, const DebugOptions& debug, const CancelFlag& cancel);

}  // namespace qwen_image::cli

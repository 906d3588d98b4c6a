// The work of `generate` and `edit`, for commands that prepare it in other ways.
#pragma once

#include "command.h"
#include "generate_options.h"

namespace qwen_image::cli {

int Draw(GenerateOptions options, const Session& session);

}  // namespace qwen_image::cli

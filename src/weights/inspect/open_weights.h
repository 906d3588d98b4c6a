// Finds and opens the weights at a path.
#pragma once

#include <filesystem>
#include <vector>

#include "weights/inspect/inspected.h"

namespace qwen_image {

// `path` is a safetensors or GGUF file, a folder with one set of weights or several, or a whole model. What
// is wrong with a part (absent shards, tensors that the index names and no shard holds, unreadable files)
// becomes a finding. Throws Error kBadInput only if nothing can be read.
std::vector<InspectedComponent> OpenWeights(const std::filesystem::path& path);

}  // namespace qwen_image

// How deep a run is recorded. The names of each level are DESIGN's: see docs/debugging.md.
#pragma once

#include <string>
#include <string_view>

namespace qwen_image {

enum class CheckpointLevel {
  kBoundaries,  // what passes between the components
  kBlocks,      // and the output of every layer and block
  kAll,         // and of every module, and the tensors between modules
};

CheckpointLevel LevelOf(std::string_view checkpoint);  // the shallowest level that records it
// "text_encoder", "transformer", "vae"; "image"; "pipeline" for what passes between them; for other names
// their first part.
std::string ComponentOf(std::string_view checkpoint);
CheckpointLevel ParseCheckpointLevel(
    std::string_view text);  // "boundaries", "blocks", "all"; throws Error kUsage

}  // namespace qwen_image

// How deep a run is recorded. Which names are on which level: docs/debugging.md tells.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

enum class CheckpointLevel {
  kBoundaries,  // what passes between the components
  kBlocks,      // and the output of every layer and block
  kAll,         // and of every module, and the tensors between modules
  kOnRequest,   // and what is large or derived (:attn_weights, :attn_entropy): only by name
};

// The shallowest level that records it. What is a block in any family is one here: a name alone does not tell
// whose it is.
CheckpointLevel LevelOf(std::string_view checkpoint);
// "text_encoder", "transformer", "vae"; "image"; "pipeline" for what passes between them; for other names
// their first part.
std::string ComponentOf(std::string_view checkpoint);
// Whether a run of this component alone computes the checkpoint.
bool IsComputedBy(std::string_view component, std::string_view checkpoint);

// The component that computes a boundary; empty for what is made by the tokenizer, the picture processors,
// the scheduler and the packing of latents, and for all that is no boundary.
std::string_view MakerOf(std::string_view boundary);

// "noise_pred_step12" after "noise_pred_step" is 12; nothing if there is more or less than a number.
std::optional<int64_t> NumberAfter(std::string_view name, std::string_view prefix);

// The checkpoints a user asked for: "blocks", "*attn.to_q", "boundaries,*blocks.3:attn_weights".
class CheckpointSelection {
 public:
  // Levels and globs ('*' matches any text), separated by commas. Throws Error kUsage for a word that is
  // neither.
  explicit CheckpointSelection(const std::string& text);

  bool Contains(std::string_view checkpoint) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::optional<CheckpointLevel> level_;  // the deepest of those named
  std::vector<std::string> globs_;
};

}  // namespace qwen_image

// Levels say how deep a run is recorded. docs/debugging.md tells which names are on which level.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image::record {

enum class CheckpointLevel {
  kBoundaries,  // what passes between the components
  kBlocks,      // and the output of every layer and block
  kAll,         // and of every module, and the tensors between modules
  kOnRequest,   // and what is large or derived (:attn_weights, :attn_entropy): only by name
};

// "boundaries", "blocks", "all"; nothing for another word.
std::optional<CheckpointLevel> ParseLevel(std::string_view word);
// The shallowest level that records the checkpoint. A name does not tell its family, so a block of any family
// counts as a block.
CheckpointLevel LevelOf(std::string_view checkpoint);
// "text_encoder", "transformer", "vae" or "image"; "pipeline" for what passes between the components. Other
// names give their first part.
std::string ComponentOf(std::string_view checkpoint);
// Whether a run of this component alone computes the checkpoint.
bool IsComputedBy(std::string_view component, std::string_view checkpoint);

// The component that computes a boundary. Empty for names that are no boundary, and for what the tokenizer,
// the picture processors, the scheduler and the packing of latents make.
std::string_view ComponentThatMakes(std::string_view boundary);

// The number behind `prefix`: NumberAfter("noise_pred_step12", "noise_pred_step") is 12. Nothing if `name` is
// not exactly the prefix and a number.
std::optional<int64_t> NumberAfter(std::string_view name, std::string_view prefix);

// The checkpoints a user asked for: "blocks", "*attn.to_q", "boundaries,*blocks.3:attn_weights".
class CheckpointSelection {
 public:
  // `text` holds levels and globs ('*' matches any text), separated by commas. Throws Error kUsage for a word
  // that is neither.
  explicit CheckpointSelection(const std::string& text);

  bool Contains(std::string_view checkpoint) const;
  // The same where whoever recorded it said the level: a model of its own has names of its own.
  bool Contains(std::string_view checkpoint, CheckpointLevel level) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::optional<CheckpointLevel> level_;  // the deepest level that `text_` names
  std::vector<std::string> globs_;
};

}  // namespace qwen_image::record

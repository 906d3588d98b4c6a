#include "parity/record/level.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "core/glob.h"
#include "families/checkpoint_names.h"
#include "families/vocabulary.h"
#include "files/numbers.h"
#include "files/text.h"

namespace qwen_image::record {
namespace {

// True for a glob, a path or the name of a boundary. A misspelt level is none of these.
bool LooksLikeCheckpoint(std::string_view word) {
  return word.find_first_of("*/:_") != word.npos || word == "image" || word == "sigmas" ||
         word == "timesteps";
}

}  // namespace

std::optional<CheckpointLevel> ParseLevel(std::string_view word) {
  if (word == "boundaries") return CheckpointLevel::kBoundaries;
  if (word == "blocks") return CheckpointLevel::kBlocks;
  if (word == "all") return CheckpointLevel::kAll;
  return std::nullopt;
}

CheckpointLevel LevelOf(std::string_view checkpoint) {
  if (checkpoint.find('/') == checkpoint.npos || checkpoint == "vae/pre_decode_latents")
    return CheckpointLevel::kBoundaries;
  if (checkpoint.ends_with(kAttentionWeights) || checkpoint.ends_with(kAttentionEntropy))
    return CheckpointLevel::kOnRequest;
  const std::string_view component = checkpoint.substr(0, checkpoint.find_first_of("./"));
  const auto all = Vocabularies();
  const bool is_block = std::any_of(all.begin(), all.end(), [&](const Vocabulary* vocabulary) {
    return IsBlock(*vocabulary->checkpoints, component, ModuleOf(checkpoint));
  });
  return is_block ? CheckpointLevel::kBlocks : CheckpointLevel::kAll;
}

std::string_view ComponentThatMakes(std::string_view boundary) {
  if (boundary == "prompt_embeds" || boundary == "negative_prompt_embeds") return "text_encoder";
  if (boundary.starts_with("noise_pred_step")) return "transformer";
  if (boundary == "image" || boundary == "image_latents") return "vae";
  return "";
}

std::optional<int64_t> NumberAfter(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::optional<uint64_t> number = ParseWhole(name.substr(prefix.size()));
  if (!number || *number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::string ComponentOf(std::string_view checkpoint) {
  if (checkpoint == "image") return "image";
  if (LevelOf(checkpoint) == CheckpointLevel::kBoundaries) return "pipeline";
  return std::string(checkpoint.substr(0, checkpoint.find_first_of("./")));
}

bool IsComputedBy(std::string_view component, std::string_view checkpoint) {
  if (ComponentOf(checkpoint) == component && checkpoint != "vae/pre_decode_latents") return true;
  if (component == "text_encoder")
    return checkpoint.ends_with("prompt_embeds") || checkpoint.ends_with("prompt_embeds_mask") ||
           checkpoint.ends_with("position_ids");
  if (component == "transformer")
    return checkpoint == "sigmas" || checkpoint == "timesteps" || checkpoint.starts_with("noise_pred_step");
  return component == "vae" && (checkpoint == "image" || checkpoint == "vae/pre_decode_latents");
}

CheckpointSelection::CheckpointSelection(const std::string& text) : text_(text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (const auto level = ParseLevel(word)) {
      level_ = level_ ? std::max(*level_, *level) : *level;
    } else if (LooksLikeCheckpoint(word)) {
      globs_.push_back(word);
    } else {
      Fail(ErrorKind::kUsage,
           "unknown checkpoint level {} (expected boundaries, blocks, all, or names such as "
           "'{}', separated by commas)",
           Quoted(word), Vocabularies().front()->checkpoints->example);
    }
  }
}

bool CheckpointSelection::Contains(std::string_view checkpoint) const {
  return Contains(checkpoint, LevelOf(checkpoint));
}

bool CheckpointSelection::Contains(std::string_view checkpoint, CheckpointLevel level) const {
  if (level_ && level <= *level_) return true;
  return std::any_of(globs_.begin(), globs_.end(), [&](const std::string& glob) {
    return MatchesGlob(glob, checkpoint) &&
           // A bare '*' does not select attention weights: they would fill the disk.
           (level != CheckpointLevel::kOnRequest ||
            glob.find(checkpoint.substr(checkpoint.rfind(':'))) != glob.npos);
  });
}

}  // namespace qwen_image::record

#include "parity/level.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"

namespace qwen_image {
namespace {

// "transformer/step003.neg/img_in" → "img_in"
std::string_view AfterLastSlash(std::string_view name) { return name.substr(name.rfind('/') + 1); }

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// "layers.12" with prefix "layers." and no suffix; "transformer_blocks.3:img" with the suffix ":img".
bool IsIndexed(std::string_view text, std::string_view prefix, std::string_view suffix) {
  return text.size() > prefix.size() + suffix.size() && text.starts_with(prefix) && text.ends_with(suffix) &&
         IsNumber(text.substr(prefix.size(), text.size() - prefix.size() - suffix.size()));
}

bool IsVisionBlock(std::string_view module) {
  constexpr std::string_view kVisual = "model.visual";
  if (!module.starts_with(kVisual)) return false;
  module.remove_prefix(kVisual.size());
  return module.empty() || module == ".patch_embed" || module == ".merger" ||
         IsIndexed(module, ".blocks.", "");
}

bool IsBlock(std::string_view component, std::string_view module) {
  if (component == "text_encoder") {
    if (IsVisionBlock(module)) return true;
    constexpr std::string_view kModel = "model.language_model.";
    if (!module.starts_with(kModel)) return false;
    module.remove_prefix(kModel.size());
    return module == "embed_tokens" || module == "norm" || IsIndexed(module, "layers.", "");
  }
  if (component == "transformer") {
    constexpr std::array<std::string_view, 6> kNames = {"img_in",          "txt_norm", "txt_in",
                                                        "time_text_embed", "norm_out", "proj_out"};
    for (std::string_view name : kNames) {
      if (module == name) return true;
    }
    return IsIndexed(module, "transformer_blocks.", ":img") ||
           IsIndexed(module, "transformer_blocks.", ":txt");
  }
  constexpr std::array<std::string_view, 10> kNames = {
      "quant_conv",      "encoder.conv_in", "encoder.mid_block", "encoder.norm_out", "encoder.conv_out",
      "post_quant_conv", "decoder.conv_in", "decoder.mid_block", "decoder.norm_out", "decoder.conv_out"};
  for (std::string_view name : kNames) {
    if (module == name) return true;
  }
  return IsIndexed(module, "decoder.up_blocks.", "") || IsIndexed(module, "encoder.down_blocks.", "");
}

std::optional<CheckpointLevel> ParseLevel(std::string_view word) {
  if (word == "boundaries") return CheckpointLevel::kBoundaries;
  if (word == "blocks") return CheckpointLevel::kBlocks;
  if (word == "all") return CheckpointLevel::kAll;
  return std::nullopt;
}

// A pattern, a path, or the name of a boundary; a misspelt level is none of them.
bool LooksLikeCheckpoint(std::string_view word) {
  return word.find_first_of("*/:_") != word.npos || word == "image" || word == "sigmas" ||
         word == "timesteps";
}

}  // namespace

CheckpointLevel LevelOf(std::string_view checkpoint) {
  if (checkpoint.find('/') == checkpoint.npos || checkpoint == "vae/pre_decode_latents")
    return CheckpointLevel::kBoundaries;
  if (checkpoint.ends_with(":attn_weights") || checkpoint.ends_with(":attn_entropy"))
    return CheckpointLevel::kOnRequest;
  const std::string_view component = checkpoint.substr(0, checkpoint.find_first_of("./"));
  return IsBlock(component, AfterLastSlash(checkpoint)) ? CheckpointLevel::kBlocks : CheckpointLevel::kAll;
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
           "'transformer/step000/*.attn.to_q', separated by commas)",
           Quoted(word));
    }
  }
}

bool CheckpointSelection::Contains(std::string_view checkpoint) const {
  const CheckpointLevel level = LevelOf(checkpoint);
  if (level_ && level <= *level_) return true;
  return std::any_of(globs_.begin(), globs_.end(), [&](const std::string& glob) {
    return MatchesGlob(glob, checkpoint) &&
           // A mere '*' must not fill a disk with attention weights.
           (level != CheckpointLevel::kOnRequest ||
            glob.find(checkpoint.substr(checkpoint.rfind(':'))) != glob.npos);
  });
}

}  // namespace qwen_image

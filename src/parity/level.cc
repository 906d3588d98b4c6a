#include "parity/level.h"

#include <array>

#include "core/fail.h"
#include "core/glob.h"

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

bool IsBlock(std::string_view component, std::string_view module) {
  if (component == "text_encoder") {
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
  constexpr std::array<std::string_view, 5> kNames = {
      "post_quant_conv", "decoder.conv_in", "decoder.mid_block", "decoder.norm_out", "decoder.conv_out"};
  for (std::string_view name : kNames) {
    if (module == name) return true;
  }
  return IsIndexed(module, "decoder.up_blocks.", "");
}

}  // namespace

CheckpointLevel LevelOf(std::string_view checkpoint) {
  if (checkpoint.find('/') == checkpoint.npos || checkpoint == "vae/pre_decode_latents")
    return CheckpointLevel::kBoundaries;
  const std::string_view component = checkpoint.substr(0, checkpoint.find_first_of("./"));
  return IsBlock(component, AfterLastSlash(checkpoint)) ? CheckpointLevel::kBlocks : CheckpointLevel::kAll;
}

std::string ComponentOf(std::string_view checkpoint) {
  if (checkpoint == "image") return "image";
  if (LevelOf(checkpoint) == CheckpointLevel::kBoundaries) return "pipeline";
  return std::string(checkpoint.substr(0, checkpoint.find_first_of("./")));
}

CheckpointLevel ParseCheckpointLevel(std::string_view text) {
  if (text == "boundaries") return CheckpointLevel::kBoundaries;
  if (text == "blocks") return CheckpointLevel::kBlocks;
  if (text == "all") return CheckpointLevel::kAll;
  Fail(ErrorKind::kUsage, "unknown checkpoint level \"{}\" (expected boundaries, blocks or all)", text);
}

}  // namespace qwen_image

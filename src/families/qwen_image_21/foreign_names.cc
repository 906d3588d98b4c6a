// What other tools call the tensors of Qwen-Image-2.1, brought to diffusers' names (for the text encoder:
// transformers' names, with everything at `model.language_model.` and `model.visual.`). A name that needs no
// change stays as it is.
//
// Known: diffusers; ComfyUI's single files (prefixes, the VAE's original names); mflux and what mlx-community
// publishes; llama.cpp's text encoders and mmproj files. Rows that some of them store together are not named
// here but divided (kFused in weight_names.cc).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "families/checkpoint_prefixes.h"
#include "families/qwen_image_21/vocabulary.h"
#include "families/renaming.h"
#include "families/text_encoder_names.h"
#include "families/wan_vae_names.h"

namespace qwen_image::qwen_image_21 {
namespace {

std::string TransformerName(std::string name) {
  constexpr std::string_view kPrefixes[] = {kCheckpointTransformer[0], kCheckpointTransformer[1],
                                            kTransformerPrefix};
  constexpr Replacement kMlx[] = {
      {"modulation.layers.1.", "modulation.1."},  // mflux
      {"modulation.0.", "modulation.1."},         // mlx-community, which counts layers with weights only
      {"time_text_embed.linear_", "time_text_embed.timestep_embedder.linear_"},
  };
  // Tables that older versions of mflux saved too.
  constexpr std::string_view kTables[] = {"time_text_embed.time_proj.freqs", "pos_embed.cos_tables.",
                                          "pos_embed.sin_tables."};
  name = ReplacePrefix(RemovePrefix(std::move(name), kPrefixes), kMlx);
  const bool is_table = std::any_of(std::begin(kTables), std::end(kTables),
                                    [&](std::string_view table) { return name.starts_with(table); });
  return is_table ? "" : name;
}

std::string OwnTextEncoderName(std::string name) {
  constexpr Replacement kMflux[] = {
      {"language_model.", "model.language_model."},  // saved for edits, with the vision tower
      {"layers.", "model.language_model.layers."},   // saved for text
      {"embed_tokens.", "model.language_model.embed_tokens."},
      {"norm.", "model.language_model.norm."},
  };
  return TextEncoderName(std::move(name), kMflux);
}

// llama.cpp's names of the vision tower (an mmproj file). It stores the two frames of the patch embedding
// apart, and numbers the deepstack mergers by the blocks that they read: `deepstack` has these numbers, in
// order.
std::optional<std::string> MmprojName(std::string_view name, const std::vector<int64_t>& deepstack) {
  constexpr Replacement kWhole[] = {{"v.patch_embd.weight", "model.visual.patch_embed.proj.0.weight"},
                                    {"v.patch_embd.weight.1", "model.visual.patch_embed.proj.1.weight"},
                                    {"v.patch_embd.bias", "model.visual.patch_embed.proj.bias"},
                                    {"v.position_embd.weight", "model.visual.pos_embed.weight"}};
  constexpr Replacement kMerger[] = {{"v.post_ln.", "model.visual.merger.norm."},
                                     {"mm.0.", "model.visual.merger.linear_fc1."},
                                     {"mm.2.", "model.visual.merger.linear_fc2."}};
  if (auto whole = ReplaceWhole(name, kWhole)) return whole;
  if (std::string merger = ReplacePrefix(std::string(name), kMerger); merger != name) return merger;
  if (const auto stack = SplitIndex(name, "v.deepstack.")) {
    constexpr Replacement kInside[] = {{".fc1.", ".linear_fc1."}, {".fc2.", ".linear_fc2."}};
    const auto place = std::find(deepstack.begin(), deepstack.end(), stack->index) - deepstack.begin();
    return fmt::format("model.visual.deepstack_merger_list.{}{}", place,
                       ReplacePrefix(std::string(stack->rest), kInside));
  }
  const auto block = SplitIndex(name, "v.blk.");
  if (!block) return std::nullopt;
  constexpr Replacement kInBlock[] = {
      {".attn_qkv.", ".attn.qkv."}, {".attn_out.", ".attn.proj."},    {".ln1.", ".norm1."},
      {".ln2.", ".norm2."},         {".ffn_up.", ".mlp.linear_fc1."}, {".ffn_down.", ".mlp.linear_fc2."}};
  return fmt::format("model.visual.blocks.{}{}", block->index,
                     ReplacePrefix(std::string(block->rest), kInBlock));
}

// Of a text encoder the tensors of its vision tower only; all of a file that holds a tower alone.
std::string VisionEncoderName(std::string name, const std::vector<int64_t>& deepstack) {
  if (auto found = MmprojName(name, deepstack)) return *found;
  if (name.starts_with("v.") || name.starts_with("mm.")) return name;  // of another model's mmproj file
  name = OwnTextEncoderName(std::move(name));
  return name.starts_with("model.visual.") ? name : "";
}

// A level of the original names is a list of its residual blocks, behind which its resampler stands, if it
// has one: `list`.I.`inner`.J. In diffusers' names both have places of their own.
std::string LevelName(std::string name, const std::string& list, std::string_view inner,
                      std::string_view blocks, std::string_view resampler) {
  const auto level = SplitIndex(name, list);
  const auto place = level ? SplitIndex(level->rest, inner) : std::nullopt;
  if (!place) return name;
  const bool resamples = place->rest.starts_with(".resample.") || place->rest.starts_with(".time_conv.");
  return resamples ? fmt::format("{}.{}.{}{}", blocks, level->index, resampler, place->rest)
                   : fmt::format("{}.{}.resnets.{}{}", blocks, level->index, place->index, place->rest);
}

std::string VaeName(std::string name) {
  name = LevelName(RemovePrefix(std::move(name), kCheckpointVae), "encoder.downsamples.", ".downsamples.",
                   "encoder.down_blocks", "downsampler");
  name = LevelName(std::move(name), "decoder.upsamples.", ".upsamples.", "decoder.up_blocks", "upsampler");
  // Older versions of mflux put convolutions into modules of their own.
  constexpr Replacement kMflux[] = {{"sampler.conv.", "sampler.resample.1."}, {".conv.", "."}};
  return ReplaceParts(WanVaeName(std::move(name)), kMflux);
}

std::string OfficialName(Component component, std::string_view stored_name,
                         const std::vector<int64_t>& deepstack) {
  if (BelongsToAnother(component, stored_name)) return "";
  constexpr Replacement kInner[] = {{".inner.", "."}};  // mlx-rs
  std::string name = ReplaceParts(std::string(stored_name), kInner);
  switch (component) {
    case Component::kTransformer:
      return TransformerName(std::move(name));
    case Component::kTextEncoder:
      return OwnTextEncoderName(std::move(name));
    case Component::kVisionEncoder:
      return VisionEncoderName(std::move(name), deepstack);
    default:
      return VaeName(std::move(name));
  }
}

}  // namespace

std::vector<int64_t> DeepstackBlocks(std::span<const std::string_view> stored_names) {
  std::vector<int64_t> blocks;
  for (const std::string_view name : stored_names) {
    if (const auto stack = SplitIndex(name, "v.deepstack.")) blocks.push_back(stack->index);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

Renamer MakeRenamer(Component component, std::span<const std::string_view> stored_names, const Json&) {
  return [component, deepstack = DeepstackBlocks(stored_names)](std::string_view stored_name) {
    return OfficialName(component, stored_name, deepstack);
  };
}

}  // namespace qwen_image::qwen_image_21

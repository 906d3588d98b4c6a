// What other tools call the tensors of Qwen-Image, brought to diffusers' names (for the text encoder:
// transformers' names, with everything at `model.language_model.` and `model.visual.`).
//
// Known: diffusers; ComfyUI's single files and checkpoints (prefixes, the VAE's original names); mflux and
// what mlx-community publishes; mlx-rs (`.inner.`); llama.cpp's text encoders and mmproj files. A name that
// needs no change stays as it is.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "families/checkpoint_prefixes.h"
#include "families/qwen_image/vocabulary.h"
#include "families/renaming.h"
#include "families/text_encoder_names.h"
#include "families/wan_vae_names.h"

namespace qwen_image {
namespace {

std::string TransformerName(std::string name) {
  constexpr Replacement kParts[] = {
      {".img_mod_linear.", ".img_mod.1."},
      {".txt_mod_linear.", ".txt_mod.1."},
      {".attn.attn_to_out.", ".attn.to_out."},
      {".img_ff.mlp_in.", ".img_mlp.net.0.proj."},
      {".img_ff.mlp_out.", ".img_mlp.net.2."},
      {".txt_ff.mlp_in.", ".txt_mlp.net.0.proj."},
      {".txt_ff.mlp_out.", ".txt_mlp.net.2."},
      {"time_text_embed.linear_", "time_text_embed.timestep_embedder.linear_"},
  };
  constexpr std::string_view kPrefixes[] = {kCheckpointTransformer[0], kCheckpointTransformer[1],
                                            kTransformerPrefix};
  return ReplaceParts(RemovePrefix(std::move(name), kPrefixes), kParts);
}

// llama.cpp's names of the vision tower (an mmproj file). It splits what is one matrix here: q, k and v, and
// the two frames of the patch embedding.
std::optional<std::string> MmprojName(std::string_view name) {
  constexpr Replacement kWhole[] = {{"v.patch_embd.weight", "model.visual.patch_embed.proj.0.weight"},
                                    {"v.patch_embd.weight.1", "model.visual.patch_embed.proj.1.weight"},
                                    {"v.post_ln.weight", "model.visual.merger.ln_q.weight"}};
  if (auto whole = ReplaceWhole(name, kWhole)) return whole;
  if (const auto projector = SplitIndex(name, "mm."))
    return fmt::format("model.visual.merger.mlp.{}{}", projector->index, projector->rest);
  const auto block = SplitIndex(name, "v.blk.");
  if (!block) return std::nullopt;
  constexpr Replacement kInBlock[] = {{".attn_q.", ".attn.q."},
                                      {".attn_k.", ".attn.k."},
                                      {".attn_v.", ".attn.v."},
                                      {".attn_qkv.", ".attn.qkv."},
                                      {".attn_out.", ".attn.proj."},
                                      {".ln1.", ".norm1."},
                                      {".ln2.", ".norm2."},
                                      {".ffn_up.", ".mlp.up_proj."},
                                      {".ffn_gate.", ".mlp.gate_proj."},
                                      {".ffn_down.", ".mlp.down_proj."}};
  return fmt::format("model.visual.blocks.{}{}", block->index,
                     ReplacePrefix(std::string(block->rest), kInBlock));
}

std::string OwnTextEncoderName(std::string name) {
  constexpr Replacement kMflux[] = {
      {"encoder.layers.", "model.language_model.layers."},
      {"encoder.embed_tokens.", "model.language_model.embed_tokens."},
      {"encoder.norm.", "model.language_model.norm."},
      {"encoder.visual.", "model.visual."},
  };
  constexpr Replacement kParts[] = {{"visual.merger.mlp_0.", "visual.merger.mlp.0."},
                                    {"visual.merger.mlp_1.", "visual.merger.mlp.2."}};
  return ReplaceParts(TextEncoderName(std::move(name), kMflux), kParts);
}

// Of a text encoder the tensors of its vision tower only; all of a file that holds a tower alone.
std::string VisionEncoderName(std::string name) {
  if (auto found = MmprojName(name)) return *found;
  if (name.starts_with("v.") || name.starts_with("mm.")) return name;  // of another model's mmproj file
  name = OwnTextEncoderName(std::move(name));
  return name.starts_with("model.visual.") ? name : "";
}

// How many residual blocks a level of the VAE's encoder has (num_res_blocks); the decoder's has one more.
constexpr int64_t kPublishedResBlocks = 2;

// Lists of the original names and of mflux, as far as the names of a file tell. A list of the decoder is the
// residual blocks of the first level, then its upsampler, then the next level.
int64_t ResBlocksOfNames(std::span<const std::string_view> stored_names) {
  int64_t first_upsampler = -1, most_of_mflux = 0;
  for (const std::string_view stored : stored_names) {
    const std::string name = RemovePrefix(std::string(stored), kCheckpointVae);
    const auto up = SplitIndex(name, "decoder.upsamples.");
    if (up && (up->rest.starts_with(".resample.") || up->rest.starts_with(".time_conv.")) &&
        (first_upsampler < 0 || up->index < first_upsampler)) {
      first_upsampler = up->index;
    }
    if (const auto down = SplitIndex(name, "encoder.down_blocks.")) {
      const auto resnet = SplitIndex(down->rest, ".resnets.");
      if (resnet) most_of_mflux = std::max(most_of_mflux, resnet->index + 1);
    }
  }
  if (first_upsampler > 1) return first_upsampler - 1;
  return most_of_mflux > 0 ? most_of_mflux : kPublishedResBlocks;
}

int64_t ResBlocks(std::span<const std::string_view> stored_names, const Json& config) {
  const auto found = config.is_object() ? config.find("num_res_blocks") : config.end();
  const bool told = config.is_object() && found != config.end() && found->is_number_integer() &&
                    *found >= 1 && *found <= 64;
  return told ? found->get<int64_t>() : ResBlocksOfNames(stored_names);
}

// The names that the VAE was published with before diffusers; ComfyUI's file keeps them.
std::string OriginalVaeName(std::string name, int64_t res_blocks) {
  constexpr Replacement kEncoder[] = {{"encoder.downsamples.", "encoder.down_blocks."}};
  // A level of the decoder is one resnet more than the encoder's, then its upsampler, in one long list.
  if (const auto up = SplitIndex(name, "decoder.upsamples.")) {
    const int64_t per_level = res_blocks + 2;
    const int64_t level = up->index / per_level, place = up->index % per_level;
    name = place == per_level - 1 ? fmt::format("decoder.up_blocks.{}.upsamplers.0{}", level, up->rest)
                                  : fmt::format("decoder.up_blocks.{}.resnets.{}{}", level, place, up->rest);
  }
  return WanVaeName(ReplacePrefix(std::move(name), kEncoder));
}

// mflux puts convolutions into modules of their own and counts levels.
std::string MfluxVaeName(std::string name, int64_t res_blocks) {
  constexpr Replacement kParts[] = {
      {".conv3d.", "."}, {".skip_conv.", ".conv_shortcut."}, {".resample_conv.", ".resample.1."}};
  name = ReplaceParts(std::move(name), kParts);
  if (const auto up = SplitIndex(name, "decoder.up_block")) {
    return fmt::format("decoder.up_blocks.{}{}", up->index, up->rest);
  }
  const auto down = SplitIndex(name, "encoder.down_blocks.");
  if (!down) return name;
  const int64_t per_level = res_blocks + 1;
  if (const auto resnet = SplitIndex(down->rest, ".resnets.")) {
    return fmt::format("encoder.down_blocks.{}{}", down->index * per_level + resnet->index, resnet->rest);
  }
  if (const auto sampler = SplitIndex(down->rest, ".downsamplers.")) {
    return fmt::format("encoder.down_blocks.{}{}", down->index * per_level + res_blocks, sampler->rest);
  }
  return name;
}

std::string DiffusersName(Component component, std::string_view stored_name, int64_t res_blocks) {
  if (BelongsToAnother(component, stored_name)) return "";
  constexpr Replacement kInner[] = {{".inner.", "."}};  // mlx-rs
  std::string name = ReplaceParts(std::string(stored_name), kInner);
  switch (component) {
    case Component::kTransformer:
      return TransformerName(std::move(name));
    case Component::kTextEncoder:
      return OwnTextEncoderName(std::move(name));
    case Component::kVisionEncoder:
      return VisionEncoderName(std::move(name));
    default:
      name = OriginalVaeName(RemovePrefix(std::move(name), kCheckpointVae), res_blocks);
      return MfluxVaeName(std::move(name), res_blocks);
  }
}

}  // namespace

Renamer QwenImageRenamer(Component component, std::span<const std::string_view> stored_names,
                         const Json& config) {
  const int64_t res_blocks =
      component == Component::kVae ? ResBlocks(stored_names, config) : kPublishedResBlocks;
  return [=](std::string_view stored_name) { return DiffusersName(component, stored_name, res_blocks); };
}

}  // namespace qwen_image

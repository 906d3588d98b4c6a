// The names are diffusers' and transformers' module names.
#include <cmath>

#include "families/qwen_image/vocabulary.h"

namespace qwen_image {
namespace {

constexpr std::string_view kTextEncoderBlocks[] = {"model.language_model.embed_tokens",
                                                   "model.language_model.norm",
                                                   "model.language_model.layers.#",
                                                   "model.visual",
                                                   "model.visual.patch_embed",
                                                   "model.visual.merger",
                                                   "model.visual.blocks.#"};
constexpr std::string_view kTransformerBlocks[] = {"img_in",
                                                   "txt_norm",
                                                   "txt_in",
                                                   "time_text_embed",
                                                   "norm_out",
                                                   "proj_out",
                                                   "transformer_blocks.#:img",
                                                   "transformer_blocks.#:txt"};
constexpr std::string_view kVaeBlocks[] = {
    "quant_conv",       "encoder.conv_in",  "encoder.mid_block",   "encoder.norm_out",
    "encoder.conv_out", "post_quant_conv",  "decoder.conv_in",     "decoder.mid_block",
    "decoder.norm_out", "decoder.conv_out", "decoder.up_blocks.#", "encoder.down_blocks.#"};
constexpr ComponentBlocks kBlocks[] = {
    {"text_encoder", kTextEncoderBlocks}, {"transformer", kTransformerBlocks}, {"vae", kVaeBlocks}};

constexpr std::string_view kBlockLists[] = {"transformer_blocks", "model.language_model.layers",
                                            "decoder.up_blocks", "encoder.down_blocks"};

constexpr MatrixRole kMatrices[] = {{"attn.to_q", "img q"},
                                    {"attn.to_k", "img k"},
                                    {"attn.to_v", "img v"},
                                    {"attn.to_out.0", "img out"},
                                    {"attn.add_q_proj", "txt q"},
                                    {"attn.add_k_proj", "txt k"},
                                    {"attn.add_v_proj", "txt v"},
                                    {"attn.to_add_out", "txt out"},
                                    {"img_mlp.net.0.proj", "img FFN up"},
                                    {"img_mlp.net.2", "img FFN down"},
                                    {"txt_mlp.net.0.proj", "txt FFN up"},
                                    {"txt_mlp.net.2", "txt FFN down"},
                                    {"img_mod.1", "img modulation"},
                                    {"txt_mod.1", "txt modulation"},
                                    {"self_attn.q_proj", "q"},
                                    {"self_attn.k_proj", "k"},
                                    {"self_attn.v_proj", "v"},
                                    {"self_attn.o_proj", "out"},
                                    {"mlp.gate_proj", "FFN gate"},
                                    {"mlp.up_proj", "FFN up"},
                                    {"mlp.down_proj", "FFN down"},
                                    {"img_in", "in and out"},
                                    {"txt_in", "in and out"},
                                    {"proj_out", "in and out"},
                                    {"norm_out.linear", "in and out"},
                                    {"time_text_embed.timestep_embedder.linear_1", "in and out"},
                                    {"time_text_embed.timestep_embedder.linear_2", "in and out"}};

constexpr std::string_view kVision[] = {"model.visual"}, kVaeEncoder[] = {"encoder", "quant_conv"};
constexpr StageNames kStages[] = {{"vision encoder", "text_encoder", kVision, true},
                                  {"text encoder", "text_encoder", {}, true},
                                  {"VAE encoder", "vae", kVaeEncoder},
                                  {"transformer", "transformer", {}, true},
                                  {"VAE decoder", "vae", {}}};

constexpr StreamNames kStreams[] = {{.input = "txt_in",
                                     .output = ":txt",
                                     .norm = {".txt_norm1", ".txt_norm2"},
                                     .modulated = {":txt_modulated1", ":txt_modulated2"},
                                     .modulation = ".txt_mod.1",
                                     .attention_residual = ":txt_attn_residual",
                                     .mlp = ".txt_mlp",
                                     .query_norm = ".attn.norm_added_q",
                                     .key_norm = ".attn.norm_added_k",
                                     .value = ".attn.add_v_proj",
                                     .attention_out = ".attn.to_add_out",
                                     .query_rope = ":txt_query_rope",
                                     .key_rope = ":txt_key_rope"},
                                    {.input = "img_in",
                                     .output = ":img",
                                     .norm = {".img_norm1", ".img_norm2"},
                                     .modulated = {":img_modulated1", ":img_modulated2"},
                                     .modulation = ".img_mod.1",
                                     .attention_residual = ":img_attn_residual",
                                     .mlp = ".img_mlp",
                                     .query_norm = ".attn.norm_q",
                                     .key_norm = ".attn.norm_k",
                                     .value = ".attn.to_v",
                                     .attention_out = ".attn.to_out.0",
                                     .query_rope = ":img_query_rope",
                                     .key_rope = ":img_key_rope"}};

constexpr std::string_view kWeightless[] = {".time_proj", ".img_norm1", ".img_norm2",
                                            ".txt_norm1", ".txt_norm2", "norm_out.norm"};

const std::vector<ComponentOrder>& Order() {
  static const std::vector<ComponentOrder> kOrder = {{"text_encoder", QwenTextEncoderOrder()},
                                                     {"transformer",
                                                      {"img_in",
                                                       "txt_norm",
                                                       "txt_in",
                                                       "time_text_embed.time_proj",
                                                       "time_text_embed.timestep_embedder.linear_1",
                                                       "time_text_embed.timestep_embedder.linear_2",
                                                       "time_text_embed.timestep_embedder",
                                                       "time_text_embed",
                                                       "transformer_blocks.#.img_mod.1",
                                                       "transformer_blocks.#.txt_mod.1",
                                                       "transformer_blocks.#.img_norm1",
                                                       "transformer_blocks.#:img_modulated1",
                                                       "transformer_blocks.#:img_gate1",
                                                       "transformer_blocks.#.txt_norm1",
                                                       "transformer_blocks.#:txt_modulated1",
                                                       "transformer_blocks.#:txt_gate1",
                                                       "transformer_blocks.#.attn.to_q",
                                                       "transformer_blocks.#.attn.to_k",
                                                       "transformer_blocks.#.attn.to_v",
                                                       "transformer_blocks.#.attn.add_q_proj",
                                                       "transformer_blocks.#.attn.add_k_proj",
                                                       "transformer_blocks.#.attn.add_v_proj",
                                                       "transformer_blocks.#.attn.norm_q",
                                                       "transformer_blocks.#.attn.norm_k",
                                                       "transformer_blocks.#.attn.norm_added_q",
                                                       "transformer_blocks.#.attn.norm_added_k",
                                                       "transformer_blocks.#:img_query_rope",
                                                       "transformer_blocks.#:img_key_rope",
                                                       "transformer_blocks.#:txt_query_rope",
                                                       "transformer_blocks.#:txt_key_rope",
                                                       "transformer_blocks.#:attn_weights",
                                                       "transformer_blocks.#:attn_entropy",
                                                       "transformer_blocks.#:attn_output",
                                                       "transformer_blocks.#.attn.to_out.0",
                                                       "transformer_blocks.#.attn.to_add_out",
                                                       "transformer_blocks.#:img_attn_residual",
                                                       "transformer_blocks.#.img_norm2",
                                                       "transformer_blocks.#:img_modulated2",
                                                       "transformer_blocks.#:img_gate2",
                                                       "transformer_blocks.#.img_mlp.net.0.proj",
                                                       "transformer_blocks.#.img_mlp.net.0",
                                                       "transformer_blocks.#.img_mlp.net.2",
                                                       "transformer_blocks.#.img_mlp",
                                                       "transformer_blocks.#:txt_attn_residual",
                                                       "transformer_blocks.#.txt_norm2",
                                                       "transformer_blocks.#:txt_modulated2",
                                                       "transformer_blocks.#:txt_gate2",
                                                       "transformer_blocks.#.txt_mlp.net.0.proj",
                                                       "transformer_blocks.#.txt_mlp.net.0",
                                                       "transformer_blocks.#.txt_mlp.net.2",
                                                       "transformer_blocks.#.txt_mlp",
                                                       "transformer_blocks.#:img",
                                                       "transformer_blocks.#:txt",
                                                       "norm_out.linear",
                                                       "norm_out.norm",
                                                       "norm_out",
                                                       "proj_out"}},
                                                     {"vae", WanVaeOrder()}};
  return kOrder;
}

// The 60 × 3072 model's, from one 512 × 512 run (docs/debugging.md has the table). Large values are normal
// there.
std::optional<ValueRange> KnownRange(std::string_view checkpoint) {
  const auto symmetric = [](double limit) { return ValueRange{-limit, limit}; };
  if (!checkpoint.starts_with("transformer/")) return std::nullopt;
  const std::string_view module = ModuleOf(checkpoint);
  if (module == "img_in") return symmetric(16);
  if (module == "norm_out") return symmetric(21);
  if (module == "proj_out") return symmetric(6);
  const auto block = ParseBlockName(kQwenImageCheckpointNames, checkpoint);
  if (!block) return std::nullopt;
  if (block->rest == ":img") {
    // ±2e6 after block 0, ±4.5e7 after block 59: between them it grows evenly by factors.
    return symmetric(2e6 * std::pow(4.5e7 / 2e6, static_cast<double>(block->index) / 59));
  }
  if (block->rest == ".img_norm1" || block->rest == ".img_norm2") return symmetric(9);
  if (block->rest == ":img_modulated1") return symmetric(70);
  if (block->rest == ".attn.to_out.0") return symmetric(120);
  if (block->rest == ".img_mlp") return symmetric(26000);
  return std::nullopt;
}

}  // namespace

const CheckpointNames kQwenImageCheckpointNames = {.blocks = kBlocks,
                                                   .block_lists = kBlockLists,
                                                   .matrices = kMatrices,
                                                   .stages = kStages,
                                                   .weightless = kWeightless,
                                                   .picture_convolution = "conv_in",
                                                   .order = Order,
                                                   .denoiser_blocks = "transformer_blocks",
                                                   .streams = kStreams,
                                                   .block_end = ":img",
                                                   .before_attention = ":txt_key_rope",
                                                   .head_norm = "norm_out",
                                                   .velocity = "proj_out",
                                                   .rescales_guidance = true,
                                                   .time_projection = ".time_proj",
                                                   .known_range = KnownRange,
                                                   .example = "transformer/step000/*.attn.to_q"};

}  // namespace qwen_image

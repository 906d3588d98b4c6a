// The names are diffusers' and transformers' module names.
#include "families/qwen_image_21/vocabulary.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr std::string_view kTextEncoderBlocks[] = {"model.language_model.embed_tokens",
                                                   "model.language_model.layers.#",
                                                   "model.visual",
                                                   "model.visual.patch_embed",
                                                   "model.visual.merger",
                                                   "model.visual.deepstack_merger_list.#",
                                                   "model.visual.blocks.#"};
constexpr std::string_view kTransformerBlocks[] = {
    "img_in", "txt_in", "time_text_embed", "modulation.1", "norm_out", "proj_out", "transformer_blocks.#"};
constexpr std::string_view kVaeBlocks[] = {
    "quant_conv",       "encoder.conv_in",  "encoder.mid_block",   "encoder.norm_out",
    "encoder.conv_out", "post_quant_conv",  "decoder.conv_in",     "decoder.mid_block",
    "decoder.norm_out", "decoder.conv_out", "decoder.up_blocks.#", "encoder.down_blocks.#"};
constexpr ComponentBlocks kBlocks[] = {
    {"text_encoder", kTextEncoderBlocks}, {"transformer", kTransformerBlocks}, {"vae", kVaeBlocks}};

constexpr std::string_view kBlockLists[] = {"transformer_blocks", "model.language_model.layers",
                                            "model.visual.blocks", "decoder.up_blocks",
                                            "encoder.down_blocks"};

constexpr MatrixRole kMatrices[] = {{"attn.to_q", "q"},
                                    {"attn.to_k", "k"},
                                    {"attn.to_v", "v"},
                                    {"attn.to_out.0", "out"},
                                    {"img_mlp.gate_layer", "FFN gate"},
                                    {"img_mlp.proj", "FFN up"},
                                    {"img_mlp.out", "FFN down"},
                                    {"modulation.1", "modulation"},
                                    {"self_attn.q_proj", "q"},
                                    {"self_attn.k_proj", "k"},
                                    {"self_attn.v_proj", "v"},
                                    {"self_attn.o_proj", "out"},
                                    {"mlp.gate_proj", "FFN gate"},
                                    {"mlp.up_proj", "FFN up"},
                                    {"mlp.down_proj", "FFN down"},
                                    {"img_in", "in and out"},
                                    {"txt_in.in_layer", "in and out"},
                                    {"txt_in.out_layer", "in and out"},
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

// The one stream begins as no module's output: text and pictures are put together first.
constexpr StreamNames kStreams[] = {{.input = ":joint",
                                     .output = "",
                                     .norm = {".img_norm1", ".img_norm2"},
                                     .modulated = {":modulated1", ":modulated2"},
                                     .attention_residual = ":attn_residual",
                                     .mlp = ".img_mlp",
                                     .query_norm = ".attn.norm_q",
                                     .key_norm = ".attn.norm_k",
                                     .value = ".attn.to_v",
                                     .attention_out = ".attn.to_out.0",
                                     .query_rope = ":query_rope",
                                     .key_rope = ":key_rope"}};
constexpr OneStreamNames kOneStream = {
    .pictures = "img_in", .modulation = "modulation.1", .gates = {":gate1", ":gate2"}};

constexpr ConditionerNames kConditioner = {.layers = "model.language_model.layers",
                                           .deepstack = ":deepstack",
                                           .features = "model.visual.deepstack_merger_list.",
                                           .rope_cos = "model.language_model.rotary_emb:cos",
                                           .rope_sin = "model.language_model.rotary_emb:sin",
                                           .embeds_before_norm = true,
                                           .norm_from_zero = "txt_in.text_norm"};

constexpr std::string_view kWeightless[] = {".time_proj", ".img_norm1", ".img_norm2", "norm_out.norm",
                                            ".avg_shortcut"};

const std::vector<ComponentOrder>& Order() {
  static const std::vector<ComponentOrder> kOrder = {{"text_encoder", QwenTextEncoderOrder()},
                                                     {"transformer",
                                                      {"img_in",
                                                       "txt_in.text_norm",
                                                       "txt_in.in_layer",
                                                       "txt_in.out_layer",
                                                       "txt_in",
                                                       "time_text_embed.time_proj",
                                                       "time_text_embed.timestep_embedder.linear_1",
                                                       "time_text_embed.timestep_embedder.linear_2",
                                                       "time_text_embed.timestep_embedder",
                                                       "time_text_embed",
                                                       "modulation.1",
                                                       ":joint",
                                                       "transformer_blocks.#.img_norm1",
                                                       "transformer_blocks.#:modulated1",
                                                       "transformer_blocks.#:gate1",
                                                       "transformer_blocks.#.attn.to_q",
                                                       "transformer_blocks.#.attn.to_k",
                                                       "transformer_blocks.#.attn.to_v",
                                                       "transformer_blocks.#.attn.norm_q",
                                                       "transformer_blocks.#.attn.norm_k",
                                                       "transformer_blocks.#:query_rope",
                                                       "transformer_blocks.#:key_rope",
                                                       "transformer_blocks.#:attn_weights",
                                                       "transformer_blocks.#:attn_entropy",
                                                       "transformer_blocks.#:attn_output",
                                                       "transformer_blocks.#.attn.to_out.0",
                                                       "transformer_blocks.#.attn",
                                                       "transformer_blocks.#:attn_residual",
                                                       "transformer_blocks.#.img_norm2",
                                                       "transformer_blocks.#:modulated2",
                                                       "transformer_blocks.#:gate2",
                                                       "transformer_blocks.#.img_mlp.gate_layer",
                                                       "transformer_blocks.#.img_mlp.proj",
                                                       "transformer_blocks.#.img_mlp.out",
                                                       "transformer_blocks.#.img_mlp",
                                                       "transformer_blocks.#",
                                                       "norm_out.linear",
                                                       "norm_out.norm",
                                                       "norm_out",
                                                       "proj_out"}},
                                                     {"vae", WanVaeOrder()}};
  return kOrder;
}

}  // namespace

const CheckpointNames kCheckpointNames = {.blocks = kBlocks,
                                          .block_lists = kBlockLists,
                                          .matrices = kMatrices,
                                          .stages = kStages,
                                          .weightless = kWeightless,
                                          .picture_convolution = "conv_in",
                                          .order = Order,
                                          .denoiser_blocks = "transformer_blocks",
                                          .streams = kStreams,
                                          .one_stream = kOneStream,
                                          .block_end = "",
                                          .before_attention = ":key_rope",
                                          .head_norm = "norm_out",
                                          .velocity = "proj_out",
                                          .rescales_guidance = false,
                                          .time_projection = ".time_proj",
                                          .conditioner = kConditioner,
                                          .example = "transformer/step000/*.attn.to_q"};

}  // namespace qwen_image::qwen_image_21
